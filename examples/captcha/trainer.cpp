#include "trainer.hpp"

#include "network.hpp"

#include <tensorlite/tensorlite.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>

namespace captcha {

namespace tl = tensorlite;
using tl::detail::concat;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kFirstLosses = 20;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Weights, dropout and pictures of a run follow from the seed.
std::unique_ptr<tl::nn::Module> seeded_model(const Recipe& recipe, std::int64_t seed) {
  tl::manual_seed(static_cast<std::uint64_t>(seed));
  return make_model(recipe);
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// Loss and accuracy of an epoch's steps. Figures stay on the device until somebody wants to see them, so that a GPU is not waited for.
class Tally {
 public:
  explicit Tally(const Interpreter& interpreter) : interpreter_(interpreter) {}
  void add(const tl::Tensor& loss, const tl::Tensor& choices, const tl::Tensor& truth) { pending_.push_back({loss, choices, truth}); }
  void collect() {
    for (const Step& step : pending_) {
      losses_.push_back(step.loss.item<float>());
      const auto read = interpreter_.texts(step.choices), truth = interpreter_.truths(step.truth);
      for (std::size_t i = 0; i < truth.size(); ++i) accuracy_.add(read[i] == truth[i]);
    }
    pending_.clear();
  }
  double loss() const {
    tl::metrics::RunningMean mean;
    for (const double loss : losses_) mean.add(loss);
    return mean.value();
  }
  double accuracy() const { return accuracy_.value(); }
  const std::vector<double>& losses() const { return losses_; }

 private:
  struct Step {
    tl::Tensor loss, choices, truth;
  };
  const Interpreter& interpreter_;
  std::vector<Step> pending_;
  std::vector<double> losses_;
  tl::metrics::RunningMean accuracy_;
};

tl::StateDict copied(const tl::StateDict& state) {
  tl::StateDict copy;
  for (const auto& [name, tensor] : state) copy[name] = tensor.detach().clone();
  return copy;
}

/// N epochs in all keep the recipe's shares of the stages, each at least one.
void divide_epochs(std::vector<Stage>& stages, std::int64_t epochs) {
  std::int64_t total = 0, left = epochs;
  for (const Stage& stage : stages) total += stage.epochs;
  for (std::size_t i = stages.size(); i-- > 1;) {
    stages[i].epochs = std::min((stages[i].epochs * epochs + total / 2) / total, left - 1);
    left -= stages[i].epochs;
  }
  stages[0].epochs = left;
  std::erase_if(stages, [](const Stage& stage) { return stage.epochs <= 0; });
}

}  // namespace

Recipe recipe_of(const TrainSettings& settings) {
  Recipe recipe = make_recipe(settings.model, settings.scale);
  recipe.batch = settings.batch.value_or(recipe.batch);
  recipe.steps = settings.steps.value_or(recipe.steps);
  recipe.patience = settings.patience.value_or(recipe.patience);
  recipe.validation_steps = settings.validation.value_or(recipe.validation_steps);
  if (!settings.lr.empty()) {
    std::vector<Stage> stages;
    for (std::size_t i = 0; i < settings.lr.size(); ++i)
      stages.push_back({settings.lr[i], recipe.stages[std::min(i, recipe.stages.size() - 1)].epochs});
    recipe.stages = stages;
  }
  if (settings.epochs.size() > 1)
    for (std::size_t i = 0; i < recipe.stages.size(); ++i) recipe.stages[i].epochs = settings.epochs[i];
  else if (!settings.epochs.empty()) divide_epochs(recipe.stages, settings.epochs[0]);
  return recipe;
}

Trainer::Trainer(const TrainSettings& settings, const Recipe& recipe, const std::string& device)
    : settings_(settings),
      recipe_(recipe),
      device_name_(device),
      scope_(device == "gpu" ? "/GPU:0" : "/CPU:0"),
      device_(device == "gpu" ? tl::gpu_device() : tl::cpu_device()),
      interpreter_(recipe),
      generator_(std::make_shared<const Generator>(recipe.image, recipe.alphabet, static_cast<std::uint64_t>(settings.seed),
                                                   std::make_shared<const Glyphs>(settings.font, recipe.alphabet))),
      model_(seeded_model(recipe, settings.seed)),
      loader_(pictures(kFirstTraining, recipe.steps * recipe.batch), loading()),
      validation_loader_(pictures(kFirstValidation, recipe.validation_steps * recipe.batch), loading()) {
  begin_stage();
}

std::shared_ptr<const DrawnPictures> Trainer::pictures(std::int64_t first, std::int64_t count) const {
  return std::make_shared<const DrawnPictures>(generator_, interpreter_, first, count);
}

tl::data::DataLoaderOptions Trainer::loading() const {
  const int workers = loader_threads(device_);
  return {.batch_size = recipe_.batch, .workers = workers, .queue = 2 * std::max(workers, 1), .device = device_};
}

Outcome Trainer::run() {
  const auto start = Clock::now();
  std::cout << "model " << recipe_.model << (recipe_.scale == "full" ? "" : " (small)") << ", " << published_size(recipe_, *model_)
            << " parameters, on " << device_name_ << ": " << device_text(device_) << ", " << tl::config::get_num_threads() << " threads"
            << std::endl;
  if (!settings_.resume.empty()) resume();
  double before = 0;
  for (const auto& epoch : epochs_) before += epoch.seconds;
  Outcome outcome;
  while (!finished() && !outcome.paused) {
    const auto epoch_start = Clock::now();
    const Score trained = train_epoch(), validated = validate();
    epochs_.push_back({trained.loss, trained.accuracy, validated.loss, validated.accuracy, seconds_since(epoch_start)});
    report_epoch();
    finish_epoch(validated);
    if (!settings_.checkpoint.empty()) save();
    outcome.paused = settings_.pause_after > 0 && seconds_since(start) >= settings_.pause_after && !finished();
  }
  if (!outcome.paused) test(outcome);
  outcome.parameters = published_size(recipe_, *model_);
  outcome.first_losses = first_losses_;
  std::vector<double> rates;
  for (const auto& epoch : epochs_) rates.push_back(static_cast<double>(recipe_.batch * recipe_.steps) / epoch.seconds);
  outcome.pictures_per_second = tl::metrics::median(rates);
  outcome.run.name = device_name_;
  outcome.run.device = device_text(device_);
  outcome.run.threads = tl::config::get_num_threads();
  outcome.run.epochs = epochs_;
  outcome.run.training_images = recipe_.batch * recipe_.steps;
  outcome.run.seconds_total = before + seconds_since(start);
  return outcome;
}

std::vector<tl::Tensor> Trainer::step(const std::vector<tl::Tensor>& batch) {
  optimizer_->zero_grad();
  tl::Tensor scores, loss;
  {
    std::optional<tl::Autocast> autocast;
    if (settings_.precision == "bfloat16") autocast.emplace();
    scores = (*model_)(to_input(batch[0]));
    loss = interpreter_.loss(scores, batch[1]);
  }
  loss.backward();
  optimizer_->step();
  return {loss.detach(), interpreter_.choices(scores.detach())};
}

Trainer::Score Trainer::train_epoch() {
  const auto epoch = static_cast<std::int64_t>(epochs_.size());
  tl::report::ProgressBar bar(concat("epoch ", epoch + 1), recipe_.steps * recipe_.batch);
  Tally tally(interpreter_);
  std::int64_t done = 0;
  model_->train();
  loader_.set_epoch(epoch);
  for (const auto& batch : loader_) {
    if (captured_) {  // the next step overwrites its results
      const auto& result = (*captured_)({batch.data, batch.target});
      tally.add(result[0].clone(), result[1].clone(), batch.target);
    } else {
      const auto result = step({batch.data, batch.target});
      tally.add(result[0], result[1], batch.target);
    }
    done += batch.size();
    if (bar.due()) {
      tally.collect();
      bar.update(done, concat("loss ", fixed(tally.loss(), 4), "  acc ", fixed(tally.accuracy(), 4)));
    }
  }
  tally.collect();
  bar.clear();
  if (epoch == 0) first_losses_ = tally.losses();
  first_losses_.resize(std::min(first_losses_.size(), kFirstLosses));
  return {tally.loss(), tally.accuracy()};
}

Trainer::Score Trainer::validate() {
  const tl::NoGradGuard no_grad;
  model_->eval();
  Tally tally(interpreter_);
  validation_loader_.set_epoch(0);  // the same pictures every time
  for (const auto& batch : validation_loader_) {
    const tl::Tensor scores = (*model_)(to_input(batch.data));
    tally.add(interpreter_.loss(scores, batch.target), interpreter_.choices(scores), batch.target);
  }
  tally.collect();
  return {tally.loss(), tally.accuracy()};
}

void Trainer::begin_stage() {
  captured_.reset();  // it holds on to the last stage's optimizer
  optimizer_ = make_optimizer(recipe_, recipe_.stages[stage_].lr, *model_);
  if (settings_.graph)
    captured_.emplace(tl::capture([this](const std::vector<tl::Tensor>& batch) { return step(batch); }, {.device = device_}));
  best_.clear();
  stopping_.reset();
  if (recipe_.patience > 0) stopping_.emplace(tl::optim::EarlyStoppingOptions{.patience = recipe_.patience});
}

void Trainer::finish_epoch(const Score& validated) {
  bool stop = ++stage_epoch_ >= recipe_.stages[stage_].epochs;
  if (stopping_) {
    stop |= stopping_->step({{"val_loss", validated.loss}});
    if (stopping_->improved()) best_ = copied(model_->state_dict());
  }
  if (!stop) return;
  if (!best_.empty()) model_->load_state_dict(best_);
  ++stage_;
  stage_epoch_ = 0;
  if (!finished()) begin_stage();
}

void Trainer::report_epoch() const {
  const auto& e = epochs_.back();
  std::cout << "epoch " << epochs_.size() << "  lr " << recipe_.stages[stage_].lr << "  loss " << fixed(e.loss, 4) << "  accuracy "
            << fixed(e.accuracy, 4) << "  val_loss " << fixed(e.val_loss, 4) << "  val_accuracy " << fixed(e.val_accuracy, 4) << "  "
            << tl::report::format_duration(e.seconds) << std::endl;
}

void Trainer::test(Outcome& outcome) {
  outcome.test_pictures = pictures(kFirstEvaluation, settings_.test);
  outcome.test = evaluate(*model_, interpreter_, outcome.test_pictures, loading());
  outcome.run.test_accuracy = outcome.test.accuracy();
  outcome.run.test_loss = outcome.test.mean_loss();
}

// --------------------------------------------------------------------------------------------------------------- checkpoints

std::map<std::string, std::string> Trainer::identity() const {
  std::map<std::string, std::string> entries = network_identity(recipe_);
  std::string rates;
  for (const Stage& stage : recipe_.stages) rates += concat(rates.empty() ? "" : ",", stage.lr);
  entries["lr"] = rates;
  entries["batch"] = std::to_string(recipe_.batch);
  entries["steps"] = std::to_string(recipe_.steps);
  entries["patience"] = std::to_string(recipe_.patience);
  entries["seed"] = std::to_string(settings_.seed);
  entries["precision"] = settings_.precision;
  return entries;
}

void Trainer::save() const {
  tl::io::Checkpoint checkpoint{{{"model", model_->state_dict()}, {"optimizer", optimizer_->state_dict()}}, identity()};
  if (!best_.empty()) checkpoint.parts["best"] = best_;
  if (stopping_) checkpoint.parts["stopping"] = stopping_->state_dict();
  const tl::TensorOptions on_cpu{.device = tl::cpu_device()};
  std::vector<double> history;
  for (const auto& e : epochs_) history.insert(history.end(), {e.loss, e.accuracy, e.val_loss, e.val_accuracy, e.seconds});
  auto& progress = checkpoint.parts["progress"];
  progress["epochs"] = tl::from_vector(history, {static_cast<std::int64_t>(epochs_.size()), 5}, on_cpu);
  progress["first_losses"] = tl::from_vector(first_losses_, on_cpu);
  progress["stage"] = tl::from_vector(std::vector<std::int64_t>{static_cast<std::int64_t>(stage_), stage_epoch_}, on_cpu);
  tl::io::save_checkpoint(settings_.checkpoint, checkpoint);
}

void Trainer::resume() {
  const auto fail = [&](const std::string& text) { throw tl::IoError("resume", settings_.resume, text); };
  tl::io::Checkpoint checkpoint = tl::io::load_checkpoint(settings_.resume);
  for (const auto& [key, mine] : identity()) {
    const auto theirs = checkpoint.metadata.find(key);
    if (theirs == checkpoint.metadata.end()) fail("is no checkpoint of captcha");
    if (theirs->second != mine) fail(concat("was trained with ", key, " ", theirs->second, ", this run has ", key, " ", mine));
  }
  auto& progress = checkpoint.parts["progress"];
  const tl::Tensor history = progress["epochs"], stage = progress["stage"], losses = progress["first_losses"];
  if (!history.defined() || history.dim() != 2 || history.size(1) != 5 || !stage.defined() || stage.numel() != 2 || !losses.defined())
    fail("does not say how far training was");
  const auto at = stage.to_vector<std::int64_t>();
  if (at[0] < 0 || at[0] > static_cast<std::int64_t>(recipe_.stages.size()) || at[1] < 0) fail("does not say how far training was");
  stage_ = static_cast<std::size_t>(at[0]);
  stage_epoch_ = at[1];
  first_losses_ = losses.to_vector<double>();
  const auto values = history.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); i += 5)
    epochs_.push_back({values[i], values[i + 1], values[i + 2], values[i + 3], values[i + 4]});
  model_->load_state_dict(checkpoint.parts["model"]);
  if (!finished()) {
    begin_stage();
    optimizer_->load_state_dict(checkpoint.parts["optimizer"]);
    if (stopping_) stopping_->load_state_dict(checkpoint.parts["stopping"]);
    best_ = checkpoint.parts["best"];
  }
  tl::io::restore_random_state(checkpoint);
  std::cout << "resuming after epoch " << epochs_.size() << std::endl;
}

}  // namespace captcha
