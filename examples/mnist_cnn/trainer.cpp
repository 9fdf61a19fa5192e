#include "trainer.hpp"

#include <tensorlite/tensorlite.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>

namespace mnist_cnn {

namespace tl = tensorlite;
using tl::detail::concat;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kMistakesShown = 12, kFirstLosses = 100;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Weights, dropout and order of a run follow from the seed.
std::unique_ptr<tl::nn::Module> seeded_model(const Recipe& recipe, std::int64_t seed) {
  tl::manual_seed(static_cast<std::uint64_t>(seed));
  return make_model(recipe);
}

/// Loss and accuracy of an epoch's steps. They stay on the device until somebody wants to see them, so that a GPU is not waited for.
class Tally {
 public:
  Tally(std::int64_t steps, tl::Device device)
      : losses_(tl::zeros({steps}, {.device = device})), hits_(tl::zeros({steps}, {.dtype = tl::kInt64, .device = device})) {}
  void add(const tl::Tensor& mean_loss, const tl::Tensor& hit_count, std::int64_t images) {
    const tl::NoGradGuard no_grad;
    const auto step = static_cast<std::int64_t>(images_.size());
    losses_[step].copy_(mean_loss);
    hits_[step].copy_(hit_count);
    images_.push_back(static_cast<double>(images));
  }
  void collect() {
    const auto done = static_cast<std::int64_t>(images_.size()), seen = static_cast<std::int64_t>(step_losses_.size());
    const auto losses = losses_.narrow(0, seen, done - seen).to_vector<float>();
    const auto hits = hits_.narrow(0, seen, done - seen).to_vector<std::int64_t>();
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const double images = images_[step_losses_.size()];
      loss_.add(losses[i], images);
      accuracy_.add(static_cast<double>(hits[i]) / images, images);
      step_losses_.push_back(losses[i]);
    }
  }
  double loss() const { return loss_.value(); }
  double accuracy() const { return accuracy_.value(); }
  const std::vector<double>& step_losses() const { return step_losses_; }

 private:
  tl::Tensor losses_, hits_;
  std::vector<double> images_, step_losses_;
  tl::metrics::RunningMean loss_, accuracy_;
};

std::int64_t steps_of(const Images& images, std::int64_t batch) { return (images->count + batch - 1) / batch; }

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// In words, for people: "AMD EPYC 7763 (avx2)".
std::string device_text(tl::Device device) {
  std::string name, detail;
  const auto physical = tl::config::get_visible_devices(device.is_gpu() ? "GPU" : "CPU");
  if (physical.empty()) return tl::short_name(device);
  for (const auto& [key, value] : tl::config::get_device_details(physical[0])) {
    if (key == "device_name") name = value;
    if (key == "instruction_set" || key == "compute_capability") detail = value;
  }
  return detail.empty() ? name : concat(name, " (", detail, ")");
}

/// Images per batch where nothing is learnt. The figures do not depend on it; on the CPU small batches keep memory low.
std::int64_t test_batch(tl::Device device) { return device.is_gpu() ? 1000 : 200; }

/// Threads that make batches ahead. Beside a GPU the CPU has nothing else to do; training on the CPU only spares one for augmentation.
int loader_threads(const Settings& settings, tl::Device device) {
  const int spare = tl::config::get_num_threads() - 1;
  return std::min(spare, device.is_gpu() ? 4 : settings.augment ? 1 : 0);
}

}  // namespace

Trainer::Trainer(const Settings& settings, const Recipe& recipe, const Digits& digits, const std::string& device)
    : settings_(settings),
      recipe_(recipe),
      digits_(digits),
      device_name_(device),
      scope_(device == "gpu" ? "/GPU:0" : "/CPU:0"),
      device_(device == "gpu" ? tl::gpu_device() : tl::cpu_device()),
      model_(seeded_model(recipe, settings.seed)),
      optimizer_(make_optimizer(recipe, *model_)),
      schedule_(recipe, *optimizer_),
      train_feed_(make_feed(digits.train, settings, recipe, device_,
                            {.batch = recipe.batch, .train = true, .workers = loader_threads(settings, device_)})),
      validation_feed_(make_feed(digits.validation, settings, recipe, device_, {.batch = test_batch(device_)})),
      test_feed_(make_feed(digits.test, settings, recipe, device_, {.batch = test_batch(device_)})) {
  if (settings.graph) captured_step_.emplace(tl::capture([this](const Feed::Inputs& inputs) { return train_step(inputs); }));
}

Outcome Trainer::run() {
  const auto start = Clock::now();
  std::cout << "model " << recipe_.model << ", " << model_->parameter_count() << " parameters, on " << device_name_ << ": "
            << device_text(device_) << ", " << tl::config::get_num_threads() << " threads" << std::endl;
  if (!settings_.resume.empty()) resume();
  for (auto epoch = static_cast<std::int64_t>(epochs_.size()); epoch < recipe_.epochs; ++epoch) {
    const auto epoch_start = Clock::now();
    const Score trained = train_epoch(epoch);
    const double seconds = seconds_since(epoch_start);
    const Score validated = validate();
    epochs_.push_back({trained.loss, trained.accuracy, validated.loss, validated.accuracy, seconds});
    report_epoch(epochs_.back());
    schedule_.step(
        {{"loss", trained.loss}, {"accuracy", trained.accuracy}, {"val_loss", validated.loss}, {"val_accuracy", validated.accuracy}});
    if (!settings_.checkpoint.empty()) save();
  }
  Outcome outcome;
  test(outcome);
  outcome.parameters = model_->parameter_count();
  outcome.first_losses = first_losses_;
  outcome.run.name = device_name_;
  outcome.run.device = device_text(device_);
  outcome.run.threads = tl::config::get_num_threads();
  outcome.run.epochs = epochs_;
  outcome.run.training_images = digits_.train->count;
  if (digits_.unlabelled) outcome.answers = answer();
  outcome.run.seconds_total = seconds_since(start);
  return outcome;
}

std::vector<tl::Tensor> Trainer::train_step(const Feed::Inputs& inputs) {
  const tl::data::Batch batch = train_feed_->get(inputs);
  optimizer_->zero_grad();
  const tl::Tensor logits = (*model_)(batch.data);
  const tl::Tensor loss = tl::cross_entropy(logits, batch.target);
  loss.backward();
  optimizer_->step();
  return {loss.detach(), tl::metrics::correct_count(logits.detach(), batch.target)};
}

Trainer::Score Trainer::train_epoch(std::int64_t epoch) {
  tl::report::ProgressBar bar(concat("epoch ", epoch + 1, "/", recipe_.epochs), digits_.train->count);
  Tally tally(steps_of(digits_.train, recipe_.batch), device_);
  std::int64_t done = 0;
  model_->train();
  train_feed_->run(epoch, [&](const Feed::Inputs& inputs, std::int64_t images) {
    const auto results = captured_step_ && images == recipe_.batch ? (*captured_step_)(inputs) : train_step(inputs);
    tally.add(results[0], results[1], images);
    done += images;
    if (bar.due()) {
      tally.collect();
      bar.update(done, concat("loss ", fixed(tally.loss(), 4), "  acc ", fixed(tally.accuracy(), 4)));
    }
  });
  tally.collect();
  bar.clear();
  for (const double loss : tally.step_losses())
    if (first_losses_.size() < kFirstLosses) first_losses_.push_back(loss);
  return {tally.loss(), tally.accuracy()};
}

Trainer::Score Trainer::validate() {
  const tl::NoGradGuard no_grad;
  model_->eval();
  Tally tally(steps_of(digits_.validation, test_batch(device_)), device_);
  validation_feed_->run(0, [&](const Feed::Inputs& inputs, std::int64_t images) {
    const tl::data::Batch batch = validation_feed_->get(inputs);
    const tl::Tensor logits = (*model_)(batch.data);
    tally.add(tl::cross_entropy(logits, batch.target), tl::metrics::correct_count(logits, batch.target), images);
  });
  tally.collect();
  return {tally.loss(), tally.accuracy()};
}

void Trainer::report_epoch(const tl::report::Epoch& e) const {
  std::cout << "epoch " << epochs_.size() << '/' << recipe_.epochs << "  loss " << fixed(e.loss, 4) << "  accuracy " << fixed(e.accuracy, 4)
            << "  val_loss " << fixed(e.val_loss, 4) << "  val_accuracy " << fixed(e.val_accuracy, 4) << "  "
            << tl::report::format_duration(e.seconds) << std::endl;
}

void Trainer::test(Outcome& outcome) {
  const tl::NoGradGuard no_grad;
  model_->eval();
  auto& confusion = outcome.run.confusion.emplace(10);
  auto& mistakes = outcome.run.mistakes;
  tl::metrics::RunningMean loss;
  std::int64_t index = 0;
  test_feed_->run(0, [&](const Feed::Inputs& inputs, std::int64_t images) {
    const tl::data::Batch batch = test_feed_->get(inputs);
    const tl::Tensor logits = (*model_)(batch.data);
    loss.add(tl::cross_entropy(logits, batch.target).item<float>(), static_cast<double>(images));
    const auto probabilities = tl::softmax(logits, 1).to_vector<float>();
    for (std::int64_t i = 0; i < images; ++i, ++index) {
      const float* p = probabilities.data() + 10 * i;
      const int truth = digits_.test->labels[static_cast<std::size_t>(index)],
                predicted = static_cast<int>(std::max_element(p, p + 10) - p);
      confusion.add(truth, predicted);
      const auto image = digits_.test->image(index);
      if (truth != predicted) mistakes.push_back({index, truth, predicted, p[truth], p[predicted], 28, 28, {image.begin(), image.end()}});
    }
  });
  std::stable_sort(mistakes.begin(), mistakes.end(), [](const auto& a, const auto& b) {
    return a.predicted_probability - a.truth_probability > b.predicted_probability - b.truth_probability;
  });
  mistakes.resize(std::min(mistakes.size(), kMistakesShown));
  outcome.run.test_loss = loss.value();
  outcome.run.test_accuracy = confusion.accuracy();
}

std::vector<int> Trainer::answer() {
  const tl::NoGradGuard no_grad;
  model_->eval();
  std::vector<int> answers;
  const auto feed = make_feed(digits_.unlabelled, settings_, recipe_, device_, {.batch = test_batch(device_)});
  feed->run(0, [&](const Feed::Inputs& inputs, std::int64_t) {
    const tl::Tensor logits = (*model_)(feed->get(inputs).data);
    for (const auto digit : tl::argmax(logits, 1).to_vector<std::int64_t>()) answers.push_back(static_cast<int>(digit));
  });
  return answers;
}

// --------------------------------------------------------------------------------------------------------------- checkpoints

std::map<std::string, std::string> Trainer::identity() const {
  return {{"model", recipe_.model},
          {"optimizer", recipe_.optimizer},
          {"lr", concat(recipe_.lr)},
          {"gamma", concat(recipe_.gamma)},
          {"batch", std::to_string(recipe_.batch)},
          {"seed", std::to_string(settings_.seed)},
          {"augment", settings_.augment ? "yes" : "no"},
          {"training images", std::to_string(digits_.train->count)}};
}

void Trainer::save() const {
  tl::io::Checkpoint checkpoint{
      {{"model", model_->state_dict()}, {"optimizer", optimizer_->state_dict()}, {"schedule", schedule_.state_dict()}}, identity()};
  std::vector<double> history;
  for (const auto& e : epochs_) history.insert(history.end(), {e.loss, e.accuracy, e.val_loss, e.val_accuracy, e.seconds});
  checkpoint.parts["history"]["epochs"] =
      tl::from_vector(history, {static_cast<std::int64_t>(epochs_.size()), 5}, {.device = tl::cpu_device()});
  tl::io::save_checkpoint(settings_.checkpoint, checkpoint);
}

void Trainer::resume() {
  const auto fail = [&](const std::string& text) { throw tl::IoError("resume", settings_.resume, text); };
  tl::io::Checkpoint checkpoint = tl::io::load_checkpoint(settings_.resume);
  for (const auto& [key, mine] : identity()) {
    const auto theirs = checkpoint.metadata.find(key);
    if (theirs == checkpoint.metadata.end()) fail("is no checkpoint of mnist_cnn");
    if (theirs->second != mine) fail(concat("was trained with ", key, " ", theirs->second, ", this run has ", key, " ", mine));
  }
  const tl::Tensor history = checkpoint.parts["history"]["epochs"];
  if (!history.defined() || history.dim() != 2 || history.size(1) != 5) fail("has no history of epochs");
  const auto values = history.to_vector<double>();
  if (history.size(0) >= recipe_.epochs) fail(concat("has done ", history.size(0), " epochs; ask for more than those with --epochs"));
  model_->load_state_dict(checkpoint.parts["model"]);
  optimizer_->load_state_dict(checkpoint.parts["optimizer"]);
  schedule_.load_state_dict(checkpoint.parts["schedule"]);
  tl::io::restore_random_state(checkpoint);
  for (std::size_t i = 0; i < values.size(); i += 5)
    epochs_.push_back({values[i], values[i + 1], values[i + 2], values[i + 3], values[i + 4]});
  std::cout << "resuming after epoch " << epochs_.size() << std::endl;
}

}  // namespace mnist_cnn
