"""Owns: where the polynomial coefficients of simd_math.h and cuda/activation.cu come from. Prints them: python3 fit_polynomials.py"""
import math
import struct


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def fit(f, low, high, degree):
    """Coefficients, lowest first, of the polynomial through the Chebyshev nodes (close to the best one)."""
    n = degree + 1
    nodes = [(low + high) / 2 + (high - low) / 2 * math.cos(math.pi * (k + 0.5) / n) for k in range(n)]
    rows = [[x**j for j in range(n)] + [f(x)] for x in nodes]
    for i in range(n):  # Gaussian elimination with pivoting
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def show(name, f, low, high, degree):
    c = fit(f, low, high, degree)
    worst = 0.0
    for i in range(20001):
        x = low + (high - low) * i / 20000
        worst = max(worst, abs(sum(a * x**j for j, a in enumerate(c)) / f(x) - 1))
    print(f"{name}: relative error {worst:.2e}")
    print("  " + ", ".join(f"{single(a):.9e}f" for a in c))


def taylor_exp(x, skip):
    """(e^x - partial sum of the first `skip` terms) / x^skip, without cancellation."""
    return sum(x**k / math.factorial(k + skip) for k in range(20))


h = math.log(2) / 2
show("(exp(r) - 1 - r) / r^2, |r| <= ln2/2", lambda r: taylor_exp(r, 2), -h, h, 4)
show("erf(x) / x in x^2, |x| <= 1",
     lambda t: 2 / math.sqrt(math.pi) * sum((-t) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(30)), 0, 1, 6)
show("-log(erfc(z)) / z, 1 <= z <= 10", lambda z: -math.log(math.erfc(z)) / z, 1, 10, 9)
p = 0.31  # of 0.01, 0.02, ... the best
show("cdf(-x) e^(x^2/2) / t in t = 1 / (1 + 0.31 x), 0 <= x <= 14",
     lambda t: math.erfc((1 / t - 1) / p / math.sqrt(2)) * math.exp(((1 / t - 1) / p) ** 2 / 2) / 2 / t, 1 / (1 + 14 * p), 1, 5)
