// The cells of recurrent layers and their gradients for one unit: written once for float, double, SIMD packets and CUDA threads.
//
// forward(x, r, h, c, kept): x is the gates' part from the input, r that from the recurrent product; h and c become the new state; `kept`
// is what backward needs, the old h first. backward(kept, dh, dc, dx, dr): dh and dc are the gradients of the new state and become those of
// the old one, without the part that goes through the recurrent product; dx and dr are the gradients of x and r.
// kTwoProducts: the last gate's product is with reset_state() instead of the state, and reset_backward() takes its gradient.
#pragma once

#include <tensorlite/backend.hpp>

namespace tensorlite::detail {

template <RnnKind kKind> struct RnnCell {  // tanh, relu
  static constexpr int kGates = 1, kKept = 2;
  static constexpr bool kTwoProducts = false;
  template <class T> TL_HOST_DEVICE static void forward(const T (&x)[1], const T (&r)[1], T& h, T&, T (&kept)[2]) {
    using elementwise::select, elementwise::tanh;
    kept[0] = h;
    const T a = x[0] + r[0];
    if constexpr (kKind == RnnKind::relu) h = select(a < T(0), T(0), a);
    else h = tanh(a);
    kept[1] = h;
  }
  template <class T> TL_HOST_DEVICE static void backward(const T (&kept)[2], T& dh, T&, T (&dx)[1], T (&dr)[1]) {
    using elementwise::select;
    if constexpr (kKind == RnnKind::relu) dx[0] = select(kept[1] > T(0), dh, T(0));
    else dx[0] = dh * (T(1) - kept[1] * kept[1]);
    dr[0] = dx[0];
    dh = T(0);
  }
};

template <> struct RnnCell<RnnKind::lstm> {
  static constexpr int kGates = 4, kKept = 7;
  static constexpr bool kTwoProducts = false;
  template <class T> TL_HOST_DEVICE static void forward(const T (&x)[4], const T (&r)[4], T& h, T& c, T (&kept)[7]) {
    using elementwise::sigmoid, elementwise::tanh;
    const T i = sigmoid(x[0] + r[0]), f = sigmoid(x[1] + r[1]), g = tanh(x[2] + r[2]), o = sigmoid(x[3] + r[3]);
    kept[0] = h, kept[1] = i, kept[2] = f, kept[3] = g, kept[4] = o, kept[5] = c;
    c = f * c + i * g;
    kept[6] = tanh(c);
    h = o * kept[6];
  }
  template <class T> TL_HOST_DEVICE static void backward(const T (&kept)[7], T& dh, T& dc, T (&dx)[4], T (&dr)[4]) {
    const T i = kept[1], f = kept[2], g = kept[3], o = kept[4], one = T(1);
    const T inner = dc + dh * o * (one - kept[6] * kept[6]);
    dx[0] = inner * g * i * (one - i);
    dx[1] = inner * kept[5] * f * (one - f);
    dx[2] = inner * i * (one - g * g);
    dx[3] = dh * kept[6] * o * (one - o);
    for (int k = 0; k < 4; ++k) dr[k] = dx[k];
    dc = inner * f;
    dh = T(0);
  }
};

template <> struct RnnCell<RnnKind::gru> {
  static constexpr int kGates = 3, kKept = 5;
  static constexpr bool kTwoProducts = false;
  template <class T> TL_HOST_DEVICE static void forward(const T (&x)[3], const T (&r)[3], T& h, T&, T (&kept)[5]) {
    using elementwise::sigmoid, elementwise::tanh;
    const T reset = sigmoid(x[0] + r[0]), update = sigmoid(x[1] + r[1]), fresh = tanh(x[2] + reset * r[2]);
    kept[0] = h, kept[1] = reset, kept[2] = update, kept[3] = fresh, kept[4] = r[2];
    h = fresh + update * (h - fresh);
  }
  template <class T> TL_HOST_DEVICE static void backward(const T (&kept)[5], T& dh, T&, T (&dx)[3], T (&dr)[3]) {
    const T reset = kept[1], update = kept[2], fresh = kept[3], one = T(1);
    dx[2] = dh * (one - update) * (one - fresh * fresh);
    dx[1] = dh * (kept[0] - fresh) * update * (one - update);
    dx[0] = dx[2] * kept[4] * reset * (one - reset);
    dr[0] = dx[0], dr[1] = dx[1], dr[2] = dx[2] * reset;
    dh = dh * update;
  }
};

template <> struct RnnCell<RnnKind::gru_reset_before> {
  static constexpr int kGates = 3, kKept = 5;
  static constexpr bool kTwoProducts = true;
  template <class T> TL_HOST_DEVICE static T reset_state(T x, T r, T h) { return elementwise::sigmoid(x + r) * h; }
  template <class T> TL_HOST_DEVICE static void forward(const T (&x)[3], const T (&r)[3], T& h, T&, T (&kept)[5]) {
    using elementwise::sigmoid, elementwise::tanh;
    const T reset = sigmoid(x[0] + r[0]), update = sigmoid(x[1] + r[1]), fresh = tanh(x[2] + r[2]);
    kept[0] = h, kept[1] = reset, kept[2] = update, kept[3] = fresh, kept[4] = reset * h;
    h = fresh + update * (h - fresh);
  }
  /// dx[0] follows in reset_backward.
  template <class T> TL_HOST_DEVICE static void backward(const T (&kept)[5], T& dh, T&, T (&dx)[3], T (&dr)[3]) {
    const T update = kept[2], fresh = kept[3], one = T(1);
    dx[2] = dh * (one - update) * (one - fresh * fresh);
    dx[1] = dh * (kept[0] - fresh) * update * (one - update);
    dx[0] = T(0);
    for (int k = 0; k < 3; ++k) dr[k] = dx[k];
    dh = dh * update;
  }
  /// From the gradient of reset_state(): adds to that of h, gives dx[0].
  template <class T> TL_HOST_DEVICE static T reset_backward(T h, T reset, T gradient, T& dh) {
    dh = dh + gradient * reset;
    return gradient * h * reset * (T(1) - reset);
  }
};

/// Calls f(RnnCell<kind>{}).
template <class F> decltype(auto) with_rnn_cell(RnnKind kind, F&& f) {
  switch (kind) {
    case RnnKind::tanh: return f(RnnCell<RnnKind::tanh>{});
    case RnnKind::relu: return f(RnnCell<RnnKind::relu>{});
    case RnnKind::lstm: return f(RnnCell<RnnKind::lstm>{});
    case RnnKind::gru: return f(RnnCell<RnnKind::gru>{});
    default: return f(RnnCell<RnnKind::gru_reset_before>{});
  }
}
inline int rnn_gates(RnnKind kind) {
  return with_rnn_cell(kind, [](auto cell) { return decltype(cell)::kGates; });
}
/// Values kept for the gradient, per unit and step.
inline int rnn_kept(RnnKind kind) {
  return with_rnn_cell(kind, [](auto cell) { return decltype(cell)::kKept; });
}

}  // namespace tensorlite::detail
