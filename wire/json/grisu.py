"""The decimal digits RapidJSON prints of a double: Grisu2's, which read back and are mostly the fewest.

Now and then they are neither the fewest nor the nearest (2**64 is `18446744073709553000`), and error texts
show them. Source: Florian Loitsch, "Printing Floating-Point Numbers Quickly and Accurately with Integers",
PLDI 2010.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_MASK = 2**64 - 1
_HIDDEN_BIT = 2**52


class _Scaled(NamedTuple):
    """The number `significand * 2**exponent`."""

    significand: int
    exponent: int

    def normalized(self) -> _Scaled:
        shift = 64 - self.significand.bit_length()
        return _Scaled(self.significand << shift, self.exponent - shift)

    def times(self, other: _Scaled) -> _Scaled:
        """Multiply, and keep the upper 64 bits, rounded."""
        product = self.significand * other.significand + (1 << 63)
        return _Scaled(product >> 64, self.exponent + other.exponent + 64)


def grisu_digits(number: float) -> tuple[str, int]:
    """Give the digits and the power of ten of their last one, for a finite number above 0."""
    exponent = max(math.frexp(number)[1] - 53, -1074)
    value = _Scaled(int(math.ldexp(number, -exponent)) if exponent > -1074 else _denormal(number), exponent)
    upper = _Scaled(2 * value.significand + 1, exponent - 1).normalized()
    # Below a power of two the neighbours lie half as far apart.
    near = 2 if value.significand == _HIDDEN_BIT else 1
    lower_significand = (value.significand << near) - 1 << (exponent - near) - upper.exponent
    power, decimal_exponent = _cached_power(upper.exponent)
    scaled = value.normalized().times(power)
    highest = upper.times(power)
    lowest = _Scaled(lower_significand, upper.exponent).times(power)
    highest = _Scaled(highest.significand - 1, highest.exponent)
    digits, shift = _generate(scaled, highest, highest.significand - lowest.significand - 1)
    return digits, decimal_exponent + shift


def _denormal(number: float) -> int:
    return int(math.ldexp(math.ldexp(number, 1000), 74))


def _cached_power(exponent: int) -> tuple[_Scaled, int]:
    """Give the one of the powers of ten 8 apart that suits the exponent, and the decimal exponent left."""
    wanted = math.ceil((-61 - exponent) * 0.30102999566398114 + 347)
    decimal = -348 + (((wanted >> 3) + 1) << 3)
    if decimal >= 0:
        exact, scale = 10**decimal, 0
    else:
        scale = 64 + (10**-decimal).bit_length()
        exact = (1 << scale + 64) // 10**-decimal
        scale += 64
    shift = exact.bit_length() - 64
    if shift > 0:
        exact = (exact + (1 << shift - 1)) >> shift
    else:
        exact <<= -shift
    return _Scaled(exact, shift - scale), -decimal


def _generate(value: _Scaled, highest: _Scaled, delta: int) -> tuple[str, int]:
    """Take digits of `highest` until what is left is less than `delta`, then step towards `value`."""
    bits = -highest.exponent
    one = 1 << bits
    distance = highest.significand - value.significand
    whole, rest = highest.significand >> bits, highest.significand & (one - 1)
    digits = ""
    for kappa in reversed(range(len(str(whole)))):
        digit, whole = divmod(whole, 10**kappa)
        digits += str(digit)
        left = (whole << bits) + rest
        if left <= delta:
            return _round(digits, delta, left, 10**kappa << bits, distance), kappa
    kappa = 0
    while True:
        rest, delta = rest * 10, delta * 10 & _MASK
        digits += str(rest >> bits)
        rest &= one - 1
        kappa -= 1
        if rest < delta:
            # RapidJSON's table of powers ends at 10**9 here.
            unit = 10**-kappa if -kappa < 9 else 0
            return _round(digits, delta, rest, one, distance * unit & _MASK), kappa


def _round(digits: str, delta: int, rest: int, unit: int, distance: int) -> str:
    last = int(digits[-1])
    while (
        rest < distance
        and delta - rest >= unit
        and (rest + unit < distance or distance - rest > rest + unit - distance)
    ):
        last -= 1
        rest += unit
    return digits[:-1] + str(last)
