// The module tree: names, copies, modes, state, moving; summary. The layers are in nn_layers_test.cpp.
#include "test_tensors.hpp"
#include "temp_folder.hpp"

using namespace tensorlite;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Block : nn::Module {
  nn::Linear first{3, 4, {.activation = Activation::relu}};
  nn::Dropout dropout{0.5};
  Block() : Module("Block") {
    register_module("first", first);
    register_module("dropout", dropout);
  }
  Tensor forward(const Tensor& x) const { return dropout(first(x)); }
};

struct Net : nn::Module {
  Block block;
  nn::BatchNorm1d norm{4};
  nn::Linear fc = register_module("fc", nn::Linear{4, 2});
  Tensor scale = register_parameter("scale", ones({2}));
  Net() {
    register_module("block", block);
    register_module("norm", norm);
  }
  Tensor forward(const Tensor& x) { return fc(norm(block(x))) * scale; }
};

std::vector<std::string> names_of(const NamedTensorList& list) {
  std::vector<std::string> names;
  for (const auto& entry : list) names.push_back(entry.first);
  return names;
}

StateDict cloned(const StateDict& dict) {
  StateDict copy;
  for (const auto& [name, tensor] : dict) copy.emplace(name, tensor.clone());
  return copy;
}

/// pytorch/examples mnist, NHWC.
struct PytorchDigits : nn::Module {
  nn::Conv2d conv1{1, 32, 3}, conv2{32, 64, 3};
  nn::Linear fc1{9216, 128}, fc2{128, 10};
  PytorchDigits() : Module("PytorchDigits") {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) {
    const Tensor features = max_pool2d(relu(conv2(relu(conv1(x)))), 2);
    return log_softmax(fc2(relu(fc1(flatten(features, 1)))), -1);
  }
};

nn::Sequential ghouzam() {
  const nn::Conv2dOptions same{.padding = Padding::same(), .activation = Activation::relu, .init = nn::Init::keras};
  return nn::Sequential(nn::Conv2d{1, 32, 5, same}, nn::Conv2d{32, 32, 5, same}, nn::MaxPool2d{2}, nn::Dropout{0.25},
                        nn::Conv2d{32, 64, 3, same}, nn::Conv2d{64, 64, 3, same}, nn::MaxPool2d{2}, nn::Dropout{0.25}, nn::Flatten{},
                        nn::Linear{3136, 256, {.activation = Activation::relu}}, nn::Dropout{0.5}, nn::Linear{256, 10});
}

}  // namespace

TEST_CASE("parameters and buffers have dotted names in the order of registration") {
  const Net net;
  CHECK(names_of(net.named_parameters()) ==
        std::vector<std::string>{"scale", "fc.weight", "fc.bias", "block.first.weight", "block.first.bias", "norm.weight", "norm.bias"});
  CHECK(names_of(net.named_buffers()) == std::vector<std::string>{"norm.running_mean", "norm.running_var"});
  CHECK(net.parameter_count() == 2 + 8 + 2 + 12 + 4 + 4 + 4);
  for (const Tensor& p : net.parameters()) CHECK((p.requires_grad() && p.is_leaf()));
  for (const Tensor& b : net.buffers()) CHECK_FALSE(b.requires_grad());
  CHECK(net.parameter("block.first.weight").sizes() == Dims({4, 3}));
  CHECK(net.buffer("norm.running_var").sizes() == Dims({4}));
  std::vector<std::string> modules;
  for (const auto& [name, module] : net.named_modules()) modules.push_back(name + ":" + module.kind());
  CHECK(modules ==
        std::vector<std::string>{":Module", "fc:Linear", "block:Block", "block.first:Linear", "block.dropout:Dropout", "norm:BatchNorm1d"});
}

TEST_CASE("a bad registration is refused") {
  Net net;
  nn::Linear other{2, 2};
  CHECK_THROWS_AS(net.register_module("fc", other), ValueError);
  CHECK_THROWS_AS(net.register_module("", other), ValueError);
  CHECK_THROWS_AS(net.register_parameter("a.b", ones({1})), ValueError);
  CHECK_THROWS_AS(net.register_buffer("scale", ones({1})), ValueError);
  CHECK_THROWS_AS(net.register_parameter("count", zeros({1}, {.dtype = kInt64})), DTypeError);
  CHECK_THROWS_AS(net.block.register_module("parent", net), ValueError);
  CHECK_THROWS_WITH(net.parameter("block.second.weight"), ContainsSubstring("'second'"));
  CHECK_THROWS_WITH(net.parameter("block.first.wait"), ContainsSubstring("'block.first.wait'"));
  CHECK(names_of(net.named_parameters()).size() == 7);
}

TEST_CASE("a result of an operation is registered as a parameter of its own") {
  nn::Module module;
  const Tensor p = module.register_parameter("p", leaf(ones({2})) * 3);
  CHECK(p.is_leaf());
  CHECK_VALUES(module.parameter("p"), {3, 3});
}

TEST_CASE("a tensor registered under two names counts once") {
  nn::Embedding table{5, 3};
  nn::Linear out{3, 5, {.bias = false}};
  nn::Module net;
  net.register_module("table", table);
  net.register_module("out", out);
  CHECK(net.parameter_count() == 30);
  out.weight() = table.weight();
  CHECK(names_of(net.named_parameters()) == std::vector<std::string>{"table.weight"});
  CHECK(net.state_dict().size() == 1);
}

TEST_CASE("train and eval reach every module") {
  Net net;
  CHECK(net.is_training());
  net.eval();
  CHECK_FALSE(net.is_training());
  CHECK_FALSE(net.block.dropout.is_training());
  CHECK_FALSE(net.norm.is_training());
  net.block.train();
  CHECK(net.block.dropout.is_training());
  CHECK_FALSE(net.is_training());
}

// --------------------------------------------------------------------------------------------------------- moves and assignments

static_assert(!std::is_copy_constructible_v<Net> && !std::is_copy_assignable_v<Net>);
static_assert(std::is_nothrow_move_constructible_v<Net> && std::is_nothrow_move_assignable_v<nn::Linear>);

TEST_CASE("a moved network keeps its tree, the one moved from says so") {
  Net net;
  const Tensor weight = net.fc.weight();
  Net moved = std::move(net);
  CHECK(moved.parameter("fc.weight").impl() == weight.impl());
  CHECK(moved.fc.weight().impl() == weight.impl());
  CHECK_THROWS_WITH(net.parameters(), ContainsSubstring("moved from"));  // NOLINT(bugprone-use-after-move)
  net = Net();
  CHECK(names_of(net.named_parameters()).size() == 7);
  net.fc = nn::Linear{4, 3};
  CHECK(net.parameter("fc.weight").sizes() == Dims({3, 4}));
  moved.eval();
  CHECK_FALSE(moved.block.dropout.is_training());
  CHECK(moved(ones({2, 3})).sizes() == Dims({2, 2}));
}

TEST_CASE("networks stay whole in a vector that grows and shrinks") {
  std::vector<Net> many;
  for (int i = 0; i < 5; ++i) {
    many.emplace_back();
    nn::init::constant_(many.back().fc.weight(), i);
  }
  many.erase(many.begin());
  for (std::size_t i = 0; i < many.size(); ++i) {
    Net& n = many[i];
    CHECK(values(n.parameter("fc.weight"))[0] == static_cast<double>(i + 1));
    CHECK(n.parameter("fc.weight").impl() == n.fc.weight().impl());
    CHECK(n.parameter("block.first.weight").impl() == n.block.first.weight().impl());
    n.fc = nn::Linear{4, 3};
    n.block = Block();
    n.block.first = nn::Linear{5, 4};
    CHECK(n.parameter("fc.weight").sizes() == Dims({3, 4}));
    CHECK(n.parameter("block.first.weight").sizes() == Dims({4, 5}));
  }
}

TEST_CASE("assigning to a registered member replaces that layer in the tree") {
  Net net;
  net.eval();
  net.fc = nn::Linear{4, 2, {.bias = false}};
  CHECK(net.parameter_count() == 2 + 8 + 12 + 4 + 4 + 4);
  CHECK(net.parameter("fc.weight").impl() == net.fc.weight().impl());
  net.block = Block();
  CHECK(net.block.dropout.is_training());
  CHECK(net.parameter("block.first.weight").impl() == net.block.first.weight().impl());
  net.eval();
  CHECK_FALSE(net.block.dropout.is_training());
}

TEST_CASE("swapped members take their names along") {
  Net net;
  const Tensor a = net.block.first.weight(), b = net.fc.weight();
  std::swap(net.block.first, net.fc);
  CHECK(net.fc.weight().impl() == a.impl());
  CHECK(net.block.first.weight().impl() == b.impl());
  CHECK(net.parameter("block.first.weight").impl() == a.impl());
  CHECK(net.parameter("fc.weight").impl() == b.impl());
  net.fc = nn::Linear{7, 7};
  CHECK(net.parameter("block.first.weight").sizes() == Dims({7, 7}));
}

TEST_CASE("assigning a whole network, also while someone looks at the old one") {
  Net net, other;
  const auto seen = net.named_modules();
  const Tensor weight = other.block.first.weight();
  net = std::move(other);
  CHECK(net.parameter("block.first.weight").impl() == weight.impl());
  CHECK(net.block.first.weight().impl() == weight.impl());
  CHECK(names_of(net.named_parameters()).size() == 7);
  net.eval();
  CHECK_FALSE(net.block.dropout.is_training());
  CHECK(seen.size() == 6);
}

TEST_CASE("layers registered from a growing vector stay registered") {
  struct Deep : nn::Module {
    std::vector<nn::Linear> layers;
    Deep() {
      for (int i = 0; i < 6; ++i) layers.push_back(register_module(std::to_string(i), nn::Linear{2, 2}));
    }
    Tensor forward(const Tensor& x) {
      Tensor y = x;
      for (auto& layer : layers) y = layer(y);
      return y;
    }
  };
  Deep deep;
  for (std::size_t i = 0; i < 6; ++i) {
    deep.layers[i] = nn::Linear{2, 2};
    CHECK(deep.parameter(std::to_string(i) + ".weight").impl() == deep.layers[i].weight().impl());
  }
  deep(ones({1, 2})).sum().backward();
  for (const Tensor& p : deep.parameters()) CHECK(p.grad().defined());
  deep.zero_grad();
  for (const Tensor& p : deep.parameters()) CHECK_FALSE(p.grad().defined());
}

TEST_CASE("calling a module without a forward of its own is an error that says what to declare") {
  nn::Module module("Mute");
  CHECK_THROWS_WITH(module(ones({1})), ContainsSubstring("Mute") && ContainsSubstring("forward(const Tensor& x)"));
  const Block block;  // declared const
  CHECK(block(ones({1, 3})).sizes() == Dims({1, 4}));
  nn::Module& base = const_cast<Block&>(block);
  CHECK(base(ones({1, 3})).sizes() == Dims({1, 4}));
}

TEST_CASE("hooks see every call") {
  Net net;
  std::vector<std::string> seen;
  const int id = net.fc.register_forward_hook([&](const nn::Module& module, const Tensor& input, const Tensor& output) {
    seen.push_back(detail::concat(module.kind(), " ", input.sizes(), " ", output.sizes()));
  });
  net(ones({3, 3}));
  CHECK(seen == std::vector<std::string>{"Linear [3, 4] [3, 2]"});
  net.fc.remove_forward_hook(id);
  net(ones({3, 3}));
  CHECK(seen.size() == 1);
}

TEST_CASE("apply visits children before parents") {
  Net net;
  std::string order;
  net.apply([&](nn::Module& m) {
    order += m.kind() + " ";
    if (m.kind() == "Linear") nn::init::zeros_(m.parameter("weight"));
  });
  CHECK(order == "BatchNorm1d Dropout Linear Block Linear Module ");
  CHECK_VALUES(net.fc.weight(), zeros({2, 4}));
}

// ---------------------------------------------------------------------------------------------------------------------- state

TEST_CASE("a state dict goes from one network to another") {
  const Device device = GENERATE(from_range(test_devices()));
  const DeviceScope scope(device);
  Net a, b;
  a(randn({8, 3}));  // moves the running statistics
  b.load_state_dict(cloned(a.state_dict()));
  a.eval();
  b.eval();
  const Tensor x = randn({4, 3});
  CHECK(values(a(x)) == values(b(x)));
  CHECK_FALSE(a.fc.weight().shares_storage(b.fc.weight()));
  StateDict other_dtype;
  for (const auto& [name, tensor] : a.state_dict()) other_dtype.emplace(name, (tensor + 1).to(kFloat64).cpu());
  b.load_state_dict(other_dtype);
  CHECK(b.fc.weight().dtype() == kFloat32);
  CHECK(b.fc.weight().device() == device);
  CHECK_VALUES(b.fc.weight(), a.fc.weight().detach() + 1);
}

TEST_CASE("a state dict that does not fit changes nothing and says all that is wrong") {
  Net net;
  const StateDict before = cloned(net.state_dict());
  StateDict dict = cloned(before);
  for (auto& entry : dict) entry.second.add_(1);
  dict.erase("fc.bias");
  dict["fc.bais"] = zeros({2});
  dict["norm.weight"] = zeros({5});
  CHECK_THROWS_WITH(net.load_state_dict(dict), ContainsSubstring("1 missing: fc.bias") && ContainsSubstring("1 unexpected: fc.bais") &&
                                                   ContainsSubstring("norm.weight is [5] in the dict and [4] in the module"));
  for (const auto& [name, tensor] : net.state_dict()) CHECK(values(tensor) == values(before.at(name)));
  dict.erase("norm.weight");
  CHECK_THROWS_AS(net.load_state_dict(dict, {.allow_missing = true}), ValueError);
  net.load_state_dict(dict, {.allow_missing = true, .allow_unexpected = true});
  CHECK_VALUES(net.fc.weight(), before.at("fc.weight") + 1);
  CHECK_VALUES(net.fc.bias(), before.at("fc.bias"));
}

TEST_CASE("loading is seen by a backward that began before") {
  nn::Linear layer{2, 1};
  const Tensor y = layer(leaf(ones({1, 2})));
  layer.load_state_dict(cloned(layer.state_dict()));
  CHECK_THROWS_AS(y.sum().backward(), AutogradError);
}

TEST_CASE("to() moves parameters, buffers and gradients under all handles") {
  Net net;
  const Tensor weight = net.fc.weight();
  net(ones({4, 3})).sum().backward();
  net.to(kFloat64);
  CHECK(weight.dtype() == kFloat64);
  CHECK(weight.grad().dtype() == kFloat64);
  CHECK(net.norm.running_mean().dtype() == kFloat64);
  CHECK((weight.requires_grad() && weight.is_leaf()));
  net(ones({4, 3}, {.dtype = kFloat64})).sum().backward();
  CHECK_THROWS_AS(net.to(kInt64), DTypeError);
  CHECK_THROWS_AS(net.to("GPU:77"), DeviceError);
  CHECK_THROWS_AS(net.to("XPU"), ValueError);

  const Device device = GENERATE(from_range(test_devices()));
  net.to(device);
  CHECK(weight.device() == device);
  CHECK(weight.grad().device() == device);
  CHECK(net.norm.running_var().device() == device);
  net.to("CPU:0");
  CHECK(weight.device() == cpu_device());
}

// --------------------------------------------------------------------------------------------------------- sequences, summary

TEST_CASE("Sequential chains modules and functions") {
  nn::Sequential net(
      nn::Linear{3, 4}, [](const Tensor& x) { return x * 2; }, nn::Dropout{0.5}, nn::Flatten{});
  net.push_back("head", nn::Linear{4, 2, {.bias = false}});
  CHECK(net.size() == 5);
  CHECK(names_of(net.named_parameters()) == std::vector<std::string>{"0.weight", "0.bias", "head.weight"});
  net.eval();
  const Tensor x = randn({5, 3});
  const Tensor expected = matmul(linear(x, net.parameter("0.weight"), net.parameter("0.bias")) * 2, net.parameter("head.weight").t());
  CHECK_VALUES(net(x), expected);
  const nn::Sequential moved = std::move(net);
  CHECK_VALUES(moved(x), expected);
}

TEST_CASE("sequences nest") {
  nn::Sequential nested(nn::Sequential(nn::Linear{2, 3}, nn::Dropout{1.0}), nn::Sequential(nn::Linear{3, 1}));
  CHECK(names_of(nested.named_parameters()) == std::vector<std::string>{"0.0.weight", "0.0.bias", "1.0.weight", "1.0.bias"});
  CHECK_VALUES(nested(ones({1, 2})), nested.parameter("1.0.bias").reshape({1, 1}));
  nested.eval();
  CHECK(nested(ones({1, 2})).item<float>() != nested.parameter("1.0.bias").item<float>());
  nn::Sequential one(nn::Sequential(nn::Linear{2, 3}));  // taken for the sequence itself
  CHECK(one.size() == 1);
}

TEST_CASE("summary shows layers, shapes and the known parameter counts") {
  PytorchDigits net;
  net.conv1.eval();
  const std::string text = nn::summary(net, {1, 28, 28, 1});
  CHECK_THAT(text, ContainsSubstring("1,199,882"));
  CHECK_THAT(text, ContainsSubstring("conv2 (Conv2d)") && ContainsSubstring("[1, 24, 24, 64]") && ContainsSubstring("18,496"));
  CHECK(text.find("conv1") < text.find("fc1"));
  CHECK(net.parameter_count() == 1199882);
  CHECK(net.is_training());
  CHECK_FALSE(net.conv1.is_training());
  for (const Tensor& p : net.parameters()) CHECK_FALSE(p.grad().defined());

  nn::Sequential other = ghouzam();
  CHECK_THAT(nn::summary(other, {2, 28, 28, 1}), ContainsSubstring("887,530") && ContainsSubstring("[2, 3136]"));
}

TEST_CASE("summary restores modes when forward throws, and shows what did not run or ran twice") {
  struct Odd : nn::Module {
    nn::Linear twice{3, 3}, never{3, 3};
    Odd() {
      register_module("twice", twice);
      register_module("never", never);
    }
    Tensor forward(const Tensor& x) { return twice(twice(x)); }
  };
  Odd odd;
  const std::string text = nn::summary(odd, {1, 3});
  CHECK_THAT(text, ContainsSubstring("(used again)") && ContainsSubstring("never (Linear)  (not run)"));
  CHECK_THAT(text, ContainsSubstring("Total parameters: 24"));
  CHECK_THROWS_AS(nn::summary(odd, {1, 4}), ShapeError);
  CHECK(odd.is_training());
  CHECK(odd.twice.is_training());
}
