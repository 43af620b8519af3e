"""Pushed faster than anybody asks."""

from headrace.pull import pushable

clicks = pushable(bound=2)
for click in range(3):
    clicks.push(click)
