// Out-of-line L4: summary().
#include <tensorlite/nn/summary.hpp>

#include <algorithm>

namespace tensorlite::nn {

namespace {

struct Row {
  std::string layer, shape, parameters;
};

/// 1199882 as "1,199,882".
std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

/// A module of the tree with what is needed to watch it run.
struct Watched : Module {
  Watched(Module&& module, std::string dotted_name, std::int64_t own)
      : Module(std::move(module)),
        name(std::move(dotted_name)),
        own_parameters(own),
        is_layer(own > 0 || state().children.empty()),
        was_training(is_training()) {}
  std::string label() const { return name.empty() ? kind() : name + " (" + kind() + ")"; }
  void restore() {
    remove_forward_hook(hook);
    state().training = was_training;
  }

  std::string name;
  std::int64_t own_parameters;
  bool is_layer;  ///< holds parameters itself, or holds no modules
  bool was_training;
  bool ran = false;
  int hook = -1;
};

/// Puts every module into evaluation with a hook on each layer, and undoes it all.
class Watch {
 public:
  Watch(const Module& model, std::vector<Row>& rows) {
    auto modules = model.named_modules();
    const NamedTensorList parameters = model.named_parameters();
    all_.reserve(modules.size());
    for (auto& [name, module] : modules) all_.emplace_back(std::move(module), name, own_count(parameters, name));
    for (Watched& w : all_)
      if (w.is_layer)
        w.hook = w.register_forward_hook([&w, &rows](const Module&, const Tensor&, const Tensor& output) {
          rows.push_back({w.label(), text_of(output), w.ran ? "(used again)" : grouped(w.own_parameters)});
          w.ran = true;
        });
    model.eval();
  }
  ~Watch() {
    for (Watched& w : all_) w.restore();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Layers that did not run but have parameters, so that the rows add up to the total.
  void add_idle(std::vector<Row>& rows) const {
    for (const Watched& w : all_)
      if (w.is_layer && !w.ran && w.own_parameters > 0) rows.push_back({w.label(), "(not run)", grouped(w.own_parameters)});
  }

 private:
  static std::string text_of(const Tensor& t) { return t.defined() ? detail::concat(t.sizes()) : "-"; }
  /// Elements of the parameters whose name is the module's and one more part.
  static std::int64_t own_count(const NamedTensorList& parameters, const std::string& module) {
    const std::string prefix = module.empty() ? "" : module + ".";
    std::int64_t count = 0;
    for (const auto& [name, tensor] : parameters)
      if (name.starts_with(prefix) && name.find('.', prefix.size()) == name.npos) count += tensor.numel();
    return count;
  }

  std::vector<Watched> all_;
};

std::string table(const std::vector<Row>& rows, const std::string& totals) {
  const Row head{"Layer", "Output shape", "Parameters"};
  std::size_t layer = head.layer.size(), shape = head.shape.size(), parameters = head.parameters.size();
  for (const Row& row : rows) {
    layer = std::max(layer, row.layer.size());
    shape = std::max(shape, row.shape.size());
    parameters = std::max(parameters, row.parameters.size());
  }
  const auto line = [&](const Row& row) {
    return row.layer + std::string(layer - row.layer.size() + 2, ' ') + row.shape +
           std::string(shape - row.shape.size() + 2 + parameters - row.parameters.size(), ' ') + row.parameters + '\n';
  };
  const std::string rule = std::string(layer + shape + parameters + 4, '-') + '\n';
  std::string text = line(head) + rule;
  for (const Row& row : rows) text += line(row);
  return text + rule + totals;
}

std::string totals(const Module& model) {
  std::int64_t all = 0, trainable = 0, bytes = 0;
  for (const Tensor& p : model.parameters()) {
    all += p.numel();
    bytes += p.nbytes();
    if (p.requires_grad()) trainable += p.numel();
  }
  char mib[32];
  std::snprintf(mib, sizeof mib, "%.2f", static_cast<double>(bytes) / (1 << 20));
  return detail::concat("Total parameters: ", grouped(all), " (", mib, " MiB), trainable: ", grouped(trainable), "\n");
}

}  // namespace

std::string summary(Module& model, const Dims& input_shape, const SummaryOptions& options) {
  const std::vector<Tensor> parameters = model.parameters();
  TensorOptions place{.dtype = options.dtype, .device = options.device};
  if (!place.device && !parameters.empty()) place.device = parameters.front().device();
  std::vector<Row> rows{{"(input)", detail::concat(input_shape), ""}};
  Watch watch(model, rows);
  NoGradGuard guard;
  model(zeros(input_shape, place));
  watch.add_idle(rows);
  return table(rows, totals(model));
}

}  // namespace tensorlite::nn
