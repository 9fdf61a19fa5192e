#include "conv_backward_few.hpp"

#include "gemm_epilogue.hpp"
#include "gemm_pack.hpp"
#include "parallel.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {

constexpr std::int64_t kNoOffset = 0;

/// to += from, `count` elements.
template <class T> void add_run(T* to, const T* from, std::int64_t count) {
  using namespace Eigen::internal;
  using P = Packet<T>;
  constexpr std::int64_t L = kLanes<T>;
  if (count < L || count > 2 * L) {
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
    return;
  }
  const P first = padd(ploadu<P>(to), ploadu<P>(from)), last = padd(ploadu<P>(to + count - L), ploadu<P>(from + count - L));
  pstoreu(to, first);  // where they overlap both have the same sum
  pstoreu(to + count - L, last);
}

/// The patches of one row of output positions, added to the rows of one band of an image.
template <class T> class FewTask {
 public:
  FewTask(const Context& context, const FewChannels<T>& p, const T* weights)
      : p_(p),
        weights_(weights),
        pitch_(round_up(p.patch(), kLanes<T>)),
        workspace_(context, sizeof(T) * static_cast<std::size_t>(p.w.outputs * pitch_)) {}

  /// Input rows [begin, end) of image n.
  void run(std::int64_t n, std::int64_t begin, std::int64_t end) {
    T* const image = p_.grad_in + n * p_.h.size * p_.w.size * p_.channels;
    const std::int64_t row_size = p_.w.size * p_.channels, reach = (p_.h.taps - 1) * p_.h.tap_step;
    std::fill(image + begin * row_size, image + end * row_size, T(0));
    for (std::int64_t y = 0; y < p_.h.outputs; ++y) {
      if (p_.h.begin(y) + reach < begin || p_.h.begin(y) >= end) continue;
      patches(p_.grad_out + (n * p_.h.outputs + y) * p_.w.outputs * p_.outputs);
      const T* from = workspace_.template data<T>();
      for (std::int64_t x = 0; x < p_.w.outputs; ++x, from += pitch_)
        for (std::int64_t tap = 0; tap < p_.h.taps; ++tap) {
          const std::int64_t row = p_.h.begin(y) + tap * p_.h.tap_step;
          if (row >= begin && row < end) add_taps(image + row * row_size, x, from + tap * p_.w.taps * p_.channels);
        }
    }
  }

 private:
  /// What one row of gradients gives to every element of its patches.
  void patches(const T* gradients) const {
    const RowPanels rows{p_.w.outputs};
    const ColumnPanels<T> panels{p_.patch()};
    for (std::int64_t panel = 0; panel < panels.count; ++panel)
      for (std::int64_t row = 0; row < rows.count; ++row) {
        const TileInput<T> in{gradients + rows.begin(row) * p_.outputs,    p_.outputs,          &kNoOffset,
                              weights_ + panels.begin(panel) * p_.outputs, panels.pitch(panel), p_.outputs};
        tile_function<T>(AForm::row_major, static_cast<int>(rows.width(row)), static_cast<int>(panels.pitch(panel) / kLanes<T>))(
            in, {workspace_.template data<T>() + rows.begin(row) * pitch_ + panels.begin(panel), pitch_});
      }
  }

  void add_taps(T* row, std::int64_t x, const T* from) const {
    const std::int64_t at = p_.w.begin(x), first = std::clamp<std::int64_t>(-at, 0, p_.w.taps),
                       last = std::clamp(p_.w.size - at, first, p_.w.taps);
    add_run(row + (at + first) * p_.channels, from + first * p_.channels, (last - first) * p_.channels);
  }

  const FewChannels<T>& p_;
  const T* weights_;
  std::int64_t pitch_;
  Workspace workspace_;
};

}  // namespace

template <class T> void few_channels_backward(const Context& context, const FewChannels<T>& p) {
  if (p.batch == 0) return;
  const Workspace weights(context, sizeof(T) * static_cast<std::size_t>(p.outputs * round_up(p.patch(), kLanes<T>) + kPackSlack<T>));
  pack_panels(weights.template data<T>(), Strip<T>{p.weight, p.patch(), 1, p.outputs, p.patch()}, ColumnPanels<T>{p.patch()});
  const std::int64_t reach = p.h.taps * p.h.tap_step, threads = num_threads();
  const std::int64_t bands = p.batch >= threads ? 1 : std::clamp(p.h.size / (4 * reach), std::int64_t{1}, ceil_div(2 * threads, p.batch));
  parallel_for(p.batch * bands, 1, [&](std::int64_t begin, std::int64_t end) {
    FewTask<T> task(context, p, weights.template data<T>());
    for (std::int64_t i = begin; i < end; ++i)
      task.run(i / bands, part_begin(p.h.size, bands, i % bands), part_begin(p.h.size, bands, i % bands + 1));
  });
}

template void few_channels_backward<float>(const Context&, const FewChannels<float>&);
template void few_channels_backward<double>(const Context&, const FewChannels<double>&);

}  // namespace tensorlite::cpu::TL_CPU_NS
