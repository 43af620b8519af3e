"""Row expressions: typed trees, checked against a row type and compiled to Python.

The reference semantics are those of Spark 4 in ANSI mode, so that Spark plans stay native; the Python
implementation follows them, and a random test compares the two. Points that may surprise Spark users, and
differences between the engines:

- Spark's optimizer may drop a part of an expression that cannot change the result, and with it that part's
  error. It may also add constants first, and raise if they overflow by themselves (`x + -1 + smallest`);
  sessions started by Headrace do not.
- Nulls and errors: operands are evaluated from left to right, divisors first; operands after a null are not
  evaluated. In a filter, the right side of an `&` whose left side is null is not evaluated.
- Years before 1 and after 9999 do not exist in Python: computing one raises here, while a Spark column
  carries it until a row is passed to Python.
- Text is read as a timestamp in UTC unless it has an offset; named zones and times without a date are
  rejected on both engines, since they would depend on the session.
- Casting NaN or an infinity to a decimal raises on both engines; plain Spark returns null.
- Floats are formatted, rounded and converted to decimals by their shortest digits. Java before 19 formats a
  few floats with a digit too many.
- Bytes that are not UTF-8 cannot be cast to text; plain Spark passes them through.
- Upper and lower case follow the Unicode versions of Python and of Java's ICU. Spark's optimizer replaces
  lower(upper(x)) by lower(x), which is wrong for some letters.
- Bare int constants take the width of the column they are combined with, and are int64 otherwise; combined
  with a decimal, they are a decimal of just their digits.
- `+` concatenates two strings. Strings are converted to numbers or dates only by a cast.
"""
