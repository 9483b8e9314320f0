/* Plain C counterparts of two schemes, for speed comparison only: row by row, loops left to the compiler.
   Greenshields flux u(1-u), outflow ends. Godunov + Euler, and WENO5 (JS or Z weights, one division per side)
   + SSPRK3. REAL is float or double. */
#include <stdlib.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MAXCELLS 4096

static inline REAL flux(REAL u) { return u * (1 - u); }

static inline REAL godunov(REAL a, REAL b) {
  REAL p = MIN(a, (REAL)0.5), q = MAX(b, (REAL)0.5);
  return MIN(flux(p), flux(q));
}

void godunov_euler(REAL *restrict state, int rows, int cells, int steps, REAL dt_dx) {
  REAL w[MAXCELLS + 2], f[MAXCELLS + 1];
  for (int r = 0; r < rows; r++) {
    memcpy(w + 1, state + (size_t)r * cells, cells * sizeof(REAL));
    for (int t = 0; t < steps; t++) {
      w[0] = w[1];
      w[cells + 1] = w[cells];
      for (int i = 0; i <= cells; i++) f[i] = godunov(w[i], w[i + 1]);
      for (int i = 0; i < cells; i++) w[i + 1] -= dt_dx * (f[i + 1] - f[i]);
    }
    memcpy(state + (size_t)r * cells, w + 1, cells * sizeof(REAL));
  }
}

static inline REAL face(REAL a, REAL b, REAL c, REAL d, REAL e, int z) {
  const REAL eps = sizeof(REAL) == 4 ? (REAL)1e-8 : (REAL)1e-14;
  REAL k = (REAL)(13.0 / 12.0), q = (REAL)0.25;
  REAL s0 = a - 2 * b + c, s1 = b - 2 * c + d, s2 = c - 2 * d + e;
  REAL t0 = a - 4 * b + 3 * c, t1 = b - d, t2 = 3 * c - 4 * d + e;
  REAL b0 = k * s0 * s0 + q * t0 * t0, b1 = k * s1 * s1 + q * t1 * t1, b2 = k * s2 * s2 + q * t2 * t2;
  REAL tau = b0 - b2, excess = z ? tau * tau : 0;
  REAL p0 = (b0 + eps) * (b0 + eps), p1 = (b1 + eps) * (b1 + eps), p2 = (b2 + eps) * (b2 + eps);
  REAL w0 = (REAL)0.1 * p1 * p2, w1 = (REAL)0.6 * p0 * p2, w2 = (REAL)0.3 * p0 * p1;
  if (z) {
    w0 *= p0 + excess;
    w1 *= p1 + excess;
    w2 *= p2 + excess;
  }
  REAL v0 = 2 * a - 7 * b + 11 * c, v1 = -b + 5 * c + 2 * d, v2 = 2 * c + 5 * d - e;
  REAL u = (w0 * v0 + w1 * v1 + w2 * v2) / ((w0 + w1 + w2) * 6);
  return MIN(MAX(u, (REAL)0), (REAL)1);
}

static inline void tendency(const REAL *restrict u, REAL *restrict w, REAL *restrict f, REAL *restrict out, int cells, int z) {
  for (int g = 0; g < 3; g++) {
    w[g] = u[0];
    w[cells + 3 + g] = u[cells - 1];
  }
  memcpy(w + 3, u, cells * sizeof(REAL));
  for (int i = 0; i <= cells; i++) {
    const REAL *c = w + i;
    f[i] = godunov(face(c[0], c[1], c[2], c[3], c[4], z), face(c[5], c[4], c[3], c[2], c[1], z));
  }
  for (int i = 0; i < cells; i++) out[i] = f[i] - f[i + 1];
}

static inline void weno5(REAL *restrict state, int rows, int cells, int steps, REAL dt_dx, int z) {
  REAL u[MAXCELLS], v[MAXCELLS], w[MAXCELLS + 6], f[MAXCELLS + 1], g[MAXCELLS];
  const REAL third = (REAL)(1.0 / 3.0);
  for (int r = 0; r < rows; r++) {
    memcpy(u, state + (size_t)r * cells, cells * sizeof(REAL));
    for (int t = 0; t < steps; t++) {
      tendency(u, w, f, g, cells, z);
      for (int i = 0; i < cells; i++) v[i] = u[i] + dt_dx * g[i];
      tendency(v, w, f, g, cells, z);
      for (int i = 0; i < cells; i++) v[i] = (REAL)0.75 * u[i] + (REAL)0.25 * (v[i] + dt_dx * g[i]);
      tendency(v, w, f, g, cells, z);
      for (int i = 0; i < cells; i++) u[i] = third * u[i] + 2 * third * (v[i] + dt_dx * g[i]);
    }
    memcpy(state + (size_t)r * cells, u, cells * sizeof(REAL));
  }
}

void weno5_js(REAL *restrict state, int rows, int cells, int steps, REAL dt_dx) { weno5(state, rows, cells, steps, dt_dx, 0); }
void weno5_z(REAL *restrict state, int rows, int cells, int steps, REAL dt_dx) { weno5(state, rows, cells, steps, dt_dx, 1); }
