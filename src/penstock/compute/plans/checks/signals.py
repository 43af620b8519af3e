"""Checks of operators on signals."""

from __future__ import annotations

from datetime import timedelta
from functools import singledispatch

from penstock.compute.plans.checks.context import Claimed, output_of
from penstock.expr.types import Field
from penstock.flow.operators.signals.delay_signal import DelaySignal
from penstock.flow.operators.signals.filter_signal import FilterSignal
from penstock.flow.operators.signals.last_row import LastRow
from penstock.flow.operators.signals.lift import Constant, Lift
from penstock.flow.operators.signals.no_repeats import NoRepeats
from penstock.flow.operators.signals.sample import Sample
from penstock.flow.operators.signals.scan_signal import ScanSignal
from penstock.flow.operators.signals.signal_source import SignalSource
from penstock.flow.operators.signals.statistic_signal import StatisticSignal
from penstock.flow.operators.signals.value_rows import ValueRows
from penstock.flow.operators.signals.when import When
from penstock.flow.operators.signals.window import Window
from penstock.flow.signal import ANY_VALUE
from penstock.flow.statistic_arguments import check_numbers, check_times, holes_of, schema_of_result, times_of
from penstock.flow.statistics.ewm import Decay, Ewm
from penstock.flow.statistics.inputs import Holes, Times
from penstock.flow.statistics.moments import Against, Cov, Regression, Std, Var
from penstock.flow.statistics.ordering import Quantile
from penstock.flow.statistics.pace import BarsByCount, EveryNth, Paced
from penstock.flow.statistics.statistic import Statistic, Windowed
from penstock.flow.statistics.steps import Crossed, Diff, PctChange
from penstock.flow.statistics.window import CountWindow, Expanding, TimeWindow

Fields = tuple[Field, ...] | None


@output_of.register(SignalSource)
def _source(operator: SignalSource, claimed: Claimed) -> Fields:
    claimed.position.name(operator.name)
    claimed.need(operator.schema == claimed.schema, "the source has another type than its values")
    return operator.schema.fields


@output_of.register(LastRow)
def _last_row(operator: LastRow, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    return claimed.input.fields


@output_of.register(FilterSignal)
@output_of.register(NoRepeats)
@output_of.register(Sample)
@output_of.register(When)
def _as_given(operator: FilterSignal | NoRepeats | Sample | When, claimed: Claimed) -> Fields:
    return claimed.input.fields


@output_of.register(ScanSignal)
def _scan(operator: ScanSignal, claimed: Claimed) -> Fields:
    return ANY_VALUE.fields


@output_of.register(ValueRows)
def _value_rows(operator: ValueRows, claimed: Claimed) -> Fields:
    return None


@output_of.register(Window)
def _window(operator: Window, claimed: Claimed) -> Fields:
    claimed.need(operator.size >= 1, "a window is of no values")
    return ANY_VALUE.fields


@output_of.register(DelaySignal)
def _delay(operator: DelaySignal, claimed: Claimed) -> Fields:
    claimed.need(operator.count >= 1, "a delay is of no values")
    return claimed.input.fields if operator.initial is None else ANY_VALUE.fields


@output_of.register(Lift)
def _lift(operator: Lift, claimed: Claimed) -> Fields:
    ports = [argument for argument in operator.arguments if not isinstance(argument, Constant)]
    claimed.need(bool(ports), "a function of signals reads none")
    claimed.need(ports == list(range(len(ports))), "the arguments are not the inputs in order")
    return ANY_VALUE.fields


# -- statistics ------------------------------------------------------------------------------------------


@output_of.register(StatisticSignal)
def _statistic(operator: StatisticSignal, claimed: Claimed) -> Fields:
    statistic, location = operator.statistic, claimed.location
    _parameters(statistic, claimed)
    values = claimed.inputs[: statistic.inputs]
    if statistic.numbers:
        for schema in values:
            check_numbers(statistic.kind, schema, location)
    holes = max(map(holes_of, values), key=list(Holes).index, default=Holes.NONE)
    times = Times.EITHER
    if statistic.reads_time:
        check_times(claimed.inputs[-1], location)
        times = times_of(claimed.inputs[-1])
    claimed.need((operator.holes, operator.times) == (holes, times), "values and times are of other types")
    return schema_of_result(statistic.result, claimed.input).fields


@singledispatch
def _parameters(statistic: Statistic, claimed: Claimed) -> None:
    """Raises for parameters that no method gives."""
    raise claimed.position.refuse(f"{statistic.kind} is no statistic that a flow can be built with")


@_parameters.register(EveryNth)
@_parameters.register(BarsByCount)
@_parameters.register(Diff)
@_parameters.register(PctChange)
def _counted(statistic: EveryNth | BarsByCount | Diff | PctChange, claimed: Claimed) -> None:
    claimed.need(statistic.count >= 1, "a count is below one")


@_parameters.register(Paced)
def _paced(statistic: Paced, claimed: Claimed) -> None:
    claimed.need(statistic.span > timedelta(), "a span of time is not above zero")


@_parameters.register(Crossed)
def _crossed(statistic: Crossed, claimed: Claimed) -> None:
    level = statistic.level
    claimed.need(level is None or level == level, "a level is no number")


@_parameters.register(Windowed)
def _windowed(statistic: Windowed, claimed: Claimed) -> None:
    window = statistic.window
    claimed.need(window.min_periods >= 0, "a count is below zero")
    match window:
        case CountWindow():
            claimed.need(window.size >= max(window.min_periods, 1), "a window has fewer values than it needs")
        case TimeWindow():
            claimed.need(window.span > timedelta(), "a span of time is not above zero")
        case Expanding():
            pass


@_parameters.register(Var)
@_parameters.register(Std)
@_parameters.register(Cov)
def _spread(statistic: Var | Std | Cov, claimed: Claimed) -> None:
    _windowed(statistic, claimed)
    claimed.need(statistic.ddof >= 0, "what is taken from a count is below zero")


@_parameters.register(Quantile)
def _quantile(statistic: Quantile, claimed: Claimed) -> None:
    _windowed(statistic, claimed)
    claimed.need(0 <= statistic.q <= 1, "a quantile is not between 0 and 1")


@_parameters.register(Regression)
def _regression(statistic: Regression, claimed: Claimed) -> None:
    _windowed(statistic, claimed)
    timed = isinstance(statistic.window, TimeWindow)
    claimed.need(timed or statistic.against is not Against.TIME, "a regression by time has no times")


@_parameters.register(Ewm)
def _ewm(statistic: Ewm, claimed: Claimed) -> None:
    claimed.need(statistic.min_periods >= 0, "a count is below zero")
    claimed.need(_decays(statistic.decay), "weights do not fall in a way that there is")


def _decays(decay: Decay) -> bool:
    if decay.half_life is not None:
        by_time = decay.adjust and not decay.ignore_na
        return decay.alpha is None and by_time and decay.half_life > timedelta()
    return decay.alpha is not None and 0 < decay.alpha <= 1
