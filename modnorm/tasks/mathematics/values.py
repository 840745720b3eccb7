"""Values of expressions: exact rationals, else complex numbers of 50 decimal digits.

Every operation is bounded. A result beyond `MAX_BITS`, or an argument outside the cheap range of
an elementary function, counts as no value.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from threading import RLock
from typing import TypeAlias

from mpmath import mpc
from mpmath.ctx_mp import MPContext
from mpmath.libmp import to_rational

DIGITS = 50
MAX_BITS = 10_000
"""Largest size of an exact numerator or denominator, and of a binary exponent."""
LOCK = RLock()
"""Held while values are computed: some functions of mpmath change the precision temporarily."""

_MAX_FACTORIAL = 1000
_MAX_ARGUMENT_BITS = 64
_MAX_EXPONENT_BITS = 20
_MAX_DENOMINATOR = 10_000
_MAX_DEGREE = 64
DIGITS_SHOWN = 20

_context = MPContext()
_context.dps = DIGITS
_NEGLIGIBLE = _context.mpf(10) ** -35

Value: TypeAlias = Fraction | mpc


class NoValueError(ArithmeticError):
    """An operation has no value, or none within the bounds."""


def bounded(value: Value) -> Value:
    """Return a value if it is finite and not too large; large rationals become inexact."""
    if isinstance(value, Fraction):
        if max(value.numerator.bit_length(), value.denominator.bit_length()) <= MAX_BITS:
            return value
        value = inexact(value)
    if not _context.isfinite(value) or (value and abs(_context.mag(value)) > MAX_BITS):
        raise NoValueError("out of range")
    return value


def inexact(value: Value) -> mpc:
    """Return a value as a complex number of the working precision."""
    if not isinstance(value, Fraction):
        return value
    return _context.mpc(_context.mpf(value.numerator) / _context.mpf(value.denominator))


def add(left: Value, right: Value) -> Value:
    return bounded(left + right)


def multiply(left: Value, right: Value) -> Value:
    return bounded(left * right)


def negate(value: Value) -> Value:
    return multiply(Fraction(-1), value)


def invert(value: Value) -> Value:
    if is_zero(value):
        raise NoValueError("division by zero")
    return bounded(1 / value)


def power(base: Value, exponent: Value) -> Value:
    """Return base to the exponent; the principal value if there are several.

    Rational roots of rationals are exact: 4 to the 1/2 is 2. Odd roots of negative numbers are
    real: -8 to the 1/3 is -2.
    """
    if is_zero(base):
        if not isinstance(exponent, Fraction) or exponent < 0:
            raise NoValueError("power of zero")
        return Fraction(int(exponent == 0))
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if size * abs(exponent.numerator) <= MAX_BITS:
            return bounded(Fraction(base**exponent.numerator))
    exact = _exact_root(base, exponent)
    if exact is not None:
        return power(exact, Fraction(exponent.numerator))
    if isinstance(exponent, Fraction) and _is_odd_root_of_negative(exponent.denominator, base):
        odd = root(Fraction(exponent.denominator), base)
        return power(odd, Fraction(exponent.numerator))
    argument = _argument(exponent, _MAX_EXPONENT_BITS)
    return bounded(_context.mpc(_context.power(inexact(base), argument)))


def root(degree: Value, radicand: Value) -> Value:
    """Return the real root if the degree is odd and the radicand real, else the principal one."""
    whole = isinstance(degree, Fraction) and degree.denominator == 1
    if whole and _is_odd_root_of_negative(degree.numerator, radicand):
        return negate(root(degree, negate(radicand)))
    return power(radicand, invert(degree))


def _is_odd_root_of_negative(degree: int, radicand: Value) -> bool:
    real = inexact(radicand)
    return degree % 2 == 1 and degree != 1 and is_real(real) and real.real < 0


def factorial(value: Value) -> Value:
    """Return the factorial; for a number that is not whole, by the gamma function."""
    if isinstance(value, Fraction) and value.denominator == 1:
        if not 0 <= value.numerator <= _MAX_FACTORIAL:
            raise NoValueError("factorial out of range")
        return bounded(Fraction(math.factorial(value.numerator)))
    argument = _argument(value, _MAX_FACTORIAL.bit_length())
    return bounded(_context.mpc(_context.factorial(argument)))


def binomial(upper: Value, lower: Value) -> Value:
    difference = add(upper, negate(lower))
    bottom = multiply(factorial(lower), factorial(difference))
    return multiply(factorial(upper), invert(bottom))


def floor(value: Value) -> Value:
    """Return the largest whole number that is not greater, of each part of a complex number."""
    return _whole(value, math.floor, _context.floor)


def ceiling(value: Value) -> Value:
    """Return the smallest whole number that is not less, of each part of a complex number."""
    return _whole(value, math.ceil, _context.ceil)


def magnitude(value: Value) -> Value:
    return abs(value) if isinstance(value, Fraction) else _context.mpc(abs(value))


def elementary(name: str, value: Value) -> Value:
    """Return an elementary function by mpmath's name: `sin`, `log`, `atan`."""
    bits = _MAX_EXPONENT_BITS if name in {"exp", "sinh", "cosh", "tanh"} else _MAX_ARGUMENT_BITS
    argument = inexact(value) if name == "log" else _argument(value, bits)
    try:
        return bounded(_context.mpc(getattr(_context, name)(argument)))
    except (ValueError, ZeroDivisionError) as error:
        raise NoValueError(name) from error


def constant(name: str) -> Value:
    """Return `pi`, `e` or `i`."""
    constants = {"pi": _context.pi, "e": _context.e, "i": _context.j}
    return _context.mpc(+constants[name])


def is_zero(value: Value) -> bool:
    """Whether a value is zero; within the working precision if it is inexact."""
    return bool(value == 0 if isinstance(value, Fraction) else abs(value) < _NEGLIGIBLE)


def is_real(value: Value) -> bool:
    """Whether a value's imaginary part is zero within the working precision."""
    if isinstance(value, Fraction) or not value.imag:
        return True
    return bool(abs(value.imag) <= _NEGLIGIBLE * max(1, abs(value.real)))


def are_close(left: Value, right: Value) -> bool:
    """Whether two values are equal; within the working precision if they are inexact."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left == right
    one, other = inexact(left), inexact(right)
    return bool(abs(one - other) <= _NEGLIGIBLE * max(1, abs(one), abs(other)))


def show(value: Value, digits: int) -> str:
    """Return the canonical text of a value: `-2/3`, `1.4142135623730950488`, `1+2i`."""
    if isinstance(value, Fraction):
        return str(value)
    real, imaginary = (_show_part(part, digits) for part in (value.real, value.imag))
    if imaginary == "0":
        return real
    sign = "" if imaginary.startswith("-") or real == "0" else "+"
    return f"{'' if real == '0' else real}{sign}{imaginary}i"


def _show_part(part: mpc, digits: int) -> str:
    if abs(part) < _NEGLIGIBLE:
        return "0"
    if abs(_context.mag(part)) <= _MAX_ARGUMENT_BITS:
        near = Fraction(*to_rational(part._mpf_)).limit_denominator(_MAX_DENOMINATOR)
        if abs(_context.mpf(near.numerator) / near.denominator - part) < _NEGLIGIBLE * abs(part):
            return str(near)
    return str(_context.nstr(part, digits))


def _exact_root(base: Value, exponent: Value) -> Fraction | None:
    """Return the root by a fractional exponent's denominator; None if it is irrational."""
    if not isinstance(base, Fraction) or not isinstance(exponent, Fraction) or base < 0:
        return None
    if not 1 < exponent.denominator <= _MAX_DEGREE:
        return None
    upper, lower = (
        _whole_root(part, exponent.denominator) for part in (base.numerator, base.denominator)
    )
    return None if upper is None or lower is None else Fraction(upper, lower)


def _whole_root(number: int, degree: int) -> int | None:
    near = int(_context.nint(_context.root(number, degree)))
    return near if near**degree == number else None


def _argument(value: Value, bits: int) -> mpc:
    argument = inexact(value)
    if argument and _context.mag(argument) > bits:
        raise NoValueError("argument out of range")
    return argument


def _whole(value: Value, exact: Callable[[Fraction], int], rounded: Callable[[mpc], mpc]) -> Value:
    if isinstance(value, Fraction):
        return Fraction(exact(value))
    argument = _argument(value, _MAX_ARGUMENT_BITS)
    return _context.mpc(*(_whole_part(part, rounded) for part in (argument.real, argument.imag)))


def _whole_part(part: mpc, rounded: Callable[[mpc], mpc]) -> mpc:
    """Round a part; a part that is whole within the working precision is its nearest integer."""
    nearest = _context.nint(part)
    return nearest if abs(nearest - part) < _NEGLIGIBLE else rounded(part)
