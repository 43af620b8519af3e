"""Row expressions: typed trees, checked against a row type and compiled to Python.

The norm is Spark 4 in ANSI mode, so that a Spark plan stays native; Python
follows it, and a random test compares the two. What a Spark user might not
expect, and where the two part:

- An expression either raises or it does not, but Spark's optimizer may leave out
  a part that cannot change the answer, and with it that part's error. It may also add
  up constants first, and raise where they overflow alone (`x + -1 + smallest`); a session
  that Penstock starts does not.
- Null and errors: operands are evaluated from left to right, divisors first; an
  operand after a null is not evaluated. In a filter, what stands right of an
  `&` whose left side is null is not evaluated.
- Years before 1 and after 9999 do not exist in Python: reaching one raises
  here, while a Spark column carries it until a row comes to Python.
- Text is read as a timestamp in UTC unless it names its offset; zones by name and
  times without a date are refused on both engines, since they would depend on the session.
- Casting NaN or an infinity to a decimal raises on both; plain Spark makes it null.
- Floats are shown, rounded and made decimals by their shortest digits. Java before
  19 shows a few floats with a digit too many.
- Bytes that are no UTF-8 cannot be cast to text; plain Spark lets them pass.
- Upper and lower case follow the Unicode version of Python and of Java's ICU. Spark's
  optimizer takes lower(upper(x)) for lower(x), which is wrong for some letters.
- Bare int constants take the width of the column they meet, and are int64 alone;
  beside a decimal they are a decimal of just their digits.
- `+` of two strings joins them. Strings become numbers or dates only by a cast.
"""
