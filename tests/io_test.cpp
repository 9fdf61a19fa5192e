// npy, npz and safetensors: known failures A39 to A42, and round trips.
#include <tensorlite/io.hpp>
#include <tensorlite/ops/shape.hpp>

#include "catch.hpp"
#include "temp_folder.hpp"

#include <cmath>
#include <cstring>

namespace tl = tensorlite;
using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

const tl::TensorOptions kCpu{.device = tl::cpu_device()};

template <class T> std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

std::string npy(const std::string& dict, const std::string& payload, int version = 1) {
  return "\x93NUMPY"s + static_cast<char>(version) + '\0' + little(dict.size(), version == 1 ? 2 : 4) + dict + payload;
}

std::string dict(const std::string& descr, const std::string& shape, const char* fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

std::string npy_error(const TempFolder& folder, const std::string& bytes) {
  const std::string path = folder.write("bad.npy", bytes);
  const std::string text = error_text<tl::IoError>([&] { tl::io::load_npy(path); });
  if (!text.empty()) CHECK_THAT(text, ContainsSubstring(path));
  return text;
}

std::string safetensors(const std::string& header, std::size_t data_bytes) {
  return little(header.size(), 8) + header + std::string(data_bytes, '\0');
}

std::string safetensors_error(const TempFolder& folder, const std::string& bytes) {
  const std::string path = folder.write("bad.safetensors", bytes);
  const std::string text = error_text<tl::IoError>([&] { tl::io::load_safetensors(path); });
  if (!text.empty()) CHECK_THAT(text, ContainsSubstring(path));
  return text;
}

/// A tensor of each dtype that `tl::io` writes, with its corner values.
tl::io::NamedTensors samples() {
  tl::io::NamedTensors all;
  all["float32"] = tl::from_vector(std::vector<float>{0.f, -1.5f, INFINITY, 1e-45f, 3.25f, 7.f}, {2, 3}, kCpu);
  all["float64"] = tl::from_vector(std::vector<double>{1e300, -0.1}, {2}, kCpu);
  all["float16"] = tl::from_vector(std::vector<tl::float16>{tl::float16(1.5f), tl::float16(-65504.f)}, {1, 2}, kCpu);
  all["int32"] = tl::from_vector(std::vector<std::int32_t>{INT32_MIN, 7}, {2}, kCpu);
  all["int64"] = tl::from_vector(std::vector<std::int64_t>{INT64_MIN, INT64_MAX}, {2, 1, 1}, kCpu);
  all["uint8"] = tl::from_vector(std::vector<std::uint8_t>{0, 255, 3}, {3}, kCpu);
  all["bool"] = tl::full({5}, true, {.dtype = tl::kBool, .device = tl::cpu_device()});
  all["scalar"] = tl::full({}, 2.5f, kCpu);
  all["empty"] = tl::empty({0, 3}, kCpu);
  return all;
}

void check_same(const tl::Tensor& a, const tl::Tensor& b) {
  CHECK(a.sizes() == b.sizes());
  REQUIRE(a.dtype() == b.dtype());
  if (a.numel() > 0) CHECK(std::memcmp(a.raw().data, b.raw().data, static_cast<std::size_t>(a.nbytes())) == 0);
}

}  // namespace

TEST_CASE("A39: npy in Fortran order is turned, not reinterpreted") {
  const TempFolder folder;
  const auto a = tl::io::load_npy(folder.write("a.npy", npy(dict("<f4", "(2, 3)", "True"), raw<float>({0, 3, 1, 4, 2, 5}))));
  CHECK(a.sizes() == tl::Dims{2, 3});
  CHECK(a.to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});

  std::vector<double> column_order(24), row_order(24);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) {
        row_order[static_cast<std::size_t>(i * 12 + j * 4 + k)] = i * 12 + j * 4 + k;
        column_order[static_cast<std::size_t>(i + 2 * j + 6 * k)] = i * 12 + j * 4 + k;
      }
  const auto b = tl::io::load_npy(folder.write("b.npy", npy(dict("<f8", "(2, 3, 4)", "True"), raw(column_order))));
  CHECK(b.sizes() == tl::Dims{2, 3, 4});
  CHECK(b.to_vector<double>() == row_order);
}

TEST_CASE("A40: hostile and unusual npy headers") {
  const TempFolder folder;
  CHECK_THAT(npy_error(folder, "\x93NUMPY\2\0"s + little(0xFFFFFFF0, 4)),
             ContainsSubstring("4294967280") && ContainsSubstring("only 0 follow"));
  CHECK_THAT(npy_error(folder, npy(dict("<f4", "(4294967296, 4294967296)"), "")), ContainsSubstring("[4294967296, 4294967296]"));
  CHECK_THAT(npy_error(folder, npy(dict("<f4", "(99999999999999999999,)"), "")), ContainsSubstring("above 2^63"));
  CHECK_THAT(npy_error(folder, npy(dict("<f4", "(1000000000, 1000)"), "1234")),
             ContainsSubstring("4 bytes") && ContainsSubstring("4000000000000"));
  std::string padded = dict("<f4", "(2,)");
  padded.insert(padded.size() - 1, 1000 - padded.size(), ' ');
  CHECK(tl::io::load_npy(folder.write("padded.npy", npy(padded, raw<float>({5, 6})))).to_vector<float>() == std::vector<float>{5, 6});
  CHECK(tl::io::load_npy(folder.write("empty.npy", npy(dict("<f4", "(3000000000, 0)"), ""))).sizes() == tl::Dims{3000000000, 0});
}

TEST_CASE("npy of other programs: versions, byte orders, key orders, scalars, narrow integers") {
  const TempFolder folder;
  const auto load = [&](const std::string& bytes) { return tl::io::load_npy(folder.write("a.npy", bytes)); };
  for (const int version : {1, 2, 3})
    CHECK(load(npy(dict("<i4", "(2,)"), raw<std::int32_t>({-1, 2}), version)).to_vector<std::int32_t>() ==
          std::vector<std::int32_t>{-1, 2});
  CHECK(load(npy(dict(">f4", "(1,)"), "\x3f\xc0\0\0"s)).to_vector<float>() == std::vector<float>{1.5f});
  CHECK(load(npy(dict(">i2", "(2, 1)"), "\xff\xfe\0\7"s)).to_vector<std::int32_t>() == std::vector<std::int32_t>{-2, 7});
  CHECK(load(npy("{\"shape\":(),\"fortran_order\":False,\"descr\":\"<f8\"}", raw<double>({2.5}))).item<double>() == 2.5);
  CHECK(load(npy(dict("<u4", "(1,)"), raw<std::uint32_t>({4000000000u}))).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{4000000000});
  CHECK(load(npy(dict("|i1", "(2L,)"), "\xff\1")).to_vector<std::int32_t>() == std::vector<std::int32_t>{-1, 1});
  CHECK(load(npy(dict("|b1", "(3,)"), "\0\1\x80"s)).to(tl::kInt32).to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 1, 1});
}

TEST_CASE("npy that is not: every fault is named") {
  const TempFolder folder;
  const std::string one = raw<float>({1});
  CHECK_THAT(npy_error(folder, ""), ContainsSubstring("not npy"));
  CHECK_THAT(npy_error(folder, "<!DOCTYPE html>"), ContainsSubstring("not npy (starts with 3c 21") && ContainsSubstring("HTML"));
  CHECK_THAT(npy_error(folder, "\x93NUMPY\1"), ContainsSubstring("too few"));
  CHECK_THAT(npy_error(folder, npy(dict("<f4", "(1,)"), one, 9)), ContainsSubstring("version 9"));
  CHECK_THAT(npy_error(folder, npy(dict("<f4", "(2,)"), one)), ContainsSubstring("has 4 bytes of values, expected 8 for shape [2]"));
  CHECK_THAT(npy_error(folder, npy(dict("<f4", "(1,)"), one + "x")), ContainsSubstring("has 5 bytes of values, expected 4"));
  CHECK_THAT(npy_error(folder, npy(dict("<c8", "(1,)"), one + one)), ContainsSubstring("dtype '<c8' is not read"));
  CHECK_THAT(npy_error(folder, npy(dict("<u8", "(1,)"), one + one)), ContainsSubstring("dtype '<u8' is not read"));
  CHECK_THAT(npy_error(folder, npy(dict("", "(1,)"), one)), ContainsSubstring("dtype '' is not read"));
  CHECK_THAT(npy_error(folder, npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", one)),
             ContainsSubstring("structured"));
  CHECK_THAT(npy_error(folder, npy("{'descr': '<f4', 'shape': (1,)}", one)), ContainsSubstring("lacks the key 'fortran_order'"));
  CHECK_THAT(npy_error(folder, npy("{'descr': '<f4', 'descr': '<f4'}", one)), ContainsSubstring("'descr' twice"));
  CHECK_THAT(npy_error(folder, npy("{'descr': '<f4', 'size': 3}", one)), ContainsSubstring("'size'"));
  CHECK_THAT(npy_error(folder, npy(dict("<f4", "(-1,)"), one)), ContainsSubstring("natural number"));
  CHECK_THAT(npy_error(folder, npy(dict("<f4", "(1,1,1,1,1,1,1,1,1)"), one)), ContainsSubstring("more than 8 dimensions"));
  CHECK_THAT(npy_error(folder, npy(dict("<f4", "(1,)", "true"), one)), ContainsSubstring("neither True nor False"));
  CHECK_THAT(npy_error(folder, npy("{'descr': '<f4", one)), ContainsSubstring("without an end"));
  CHECK_THAT(npy_error(folder, npy("", one)), ContainsSubstring("lacks '{'"));
  CHECK_THAT(error_text<tl::IoError>([&] { tl::io::load_npy(folder / "absent.npy"); }), ContainsSubstring("cannot open"));
}

TEST_CASE("npy and npz give back what they were given") {
  const TempFolder folder;
  const auto all = samples();
  for (const auto& [name, tensor] : all) {
    INFO(name);
    tl::io::save_npy(folder / "a.npy", tensor);
    CHECK(file_bytes(folder / "a.npy").find('\n') % 64 == 63);  // the values are aligned
    check_same(tl::io::load_npy(folder / "a.npy"), tensor);
  }
  for (const auto compression : {tl::io::Compression::stored, tl::io::Compression::deflated}) {
    tl::io::save_npz(folder / "all.npz", all, compression);
    const auto back = tl::io::load_npz(folder / "all.npz");
    REQUIRE(back.size() == all.size());
    for (const auto& [name, tensor] : all) check_same(back.at(name), tensor);
  }
  tl::io::save_npz(folder / "none.npz", {});
  CHECK(tl::io::load_npz(folder / "none.npz").empty());
  const auto zeros = tl::zeros({100, 100}, kCpu);
  tl::io::save_npz(folder / "zeros.npz", {{"z", zeros}}, tl::io::Compression::deflated);
  CHECK(std::filesystem::file_size(folder / "zeros.npz") < 1000);
  tl::io::save_npy(folder / "view.npy", all.at("float32").transpose(0, 1));
  CHECK(tl::io::load_npy(folder / "view.npy").sizes() == tl::Dims{3, 2});
  CHECK(tl::io::load_npy(folder / "view.npy").to_vector<float>()[1] == 1e-45f);
  CHECK_THAT(error_text<tl::DTypeError>(
                 [&] { tl::io::save_npy(folder / "b.npy", tl::zeros({1}, {.dtype = tl::kBFloat16, .device = tl::cpu_device()})); }),
             ContainsSubstring("bfloat16"));
}

TEST_CASE("damaged npz archives are refused whole") {
  const TempFolder folder;
  const auto values = tl::from_vector(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, {8}, kCpu);
  const auto error = [&](const std::string& bytes) {
    return error_text<tl::IoError>([&] { tl::io::load_npz(folder.write("bad.npz", bytes)); });
  };
  for (const auto compression : {tl::io::Compression::stored, tl::io::Compression::deflated}) {
    tl::io::save_npz(folder / "good.npz", {{"x", values}}, compression);
    const std::string good = file_bytes(folder / "good.npz");
    const std::size_t directory = good.find("PK\1\2");
    for (std::size_t at = 35; at < directory; ++at) {  // behind the local header, in the array
      std::string flipped = good;
      flipped[at] ^= 1;
      REQUIRE_THAT(error(flipped), ContainsSubstring("entry 'x.npy': "));
    }
    CHECK_THAT(error(good.substr(0, good.size() / 2)), ContainsSubstring("no zip directory"));
    for (std::size_t n = 0; n < good.size(); ++n) REQUIRE(!error(good.substr(0, n)).empty());
    std::string huge = good;
    huge.replace(directory + 24, 4, little(0xfffffff0, 4));
    CHECK_THAT(error(huge), ContainsSubstring("x.npy") && ContainsSubstring("size"));
    std::string far = good;
    far.replace(directory + 42, 4, little(0xfffffff0, 4));
    CHECK_THAT(error(far), ContainsSubstring("truncated or corrupted"));
    std::string other = good;
    other.replace(directory + 10, 2, little(12, 2));
    CHECK_THAT(error(other), ContainsSubstring("compression method 12"));
    std::string foreign = good;
    foreign.replace(directory + 46, 5, "x.txt");
    CHECK_THAT(error(foreign), ContainsSubstring("'x.txt' is no .npy array"));
  }
  CHECK_THAT(error("\x1f\x8b\x08"), ContainsSubstring("not npz"));
  CHECK_THAT(error("\x93NUMPY..."), ContainsSubstring("not npz (starts with 93 4e 55 4d"));
}

TEST_CASE("A41: safetensors whose shape, dtype, offsets or length disagree") {
  const TempFolder folder;
  const auto with_offsets = [](const std::string& end) { return R"({"w":{"dtype":"F32","shape":[32,8],"data_offsets":[0,)" + end + "]}}"; };
  CHECK_THAT(safetensors_error(folder, safetensors(with_offsets("65536"), 65536)),
             ContainsSubstring("'w'") && ContainsSubstring("65536") && ContainsSubstring("1024"));
  CHECK_THAT(safetensors_error(folder, safetensors(with_offsets("256"), 256)),
             ContainsSubstring("'w'") && ContainsSubstring("256") && ContainsSubstring("1024"));
  CHECK_THAT(safetensors_error(folder, safetensors(with_offsets("1024"), 1000)), ContainsSubstring("'w'") && ContainsSubstring("1000"));
  CHECK_THAT(safetensors_error(folder, little(~0ull - 2, 8) + "{}"), ContainsSubstring("18446744073709551613"));
  CHECK_THAT(safetensors_error(folder, little(100, 8) + "{}"), ContainsSubstring("header length 100") && ContainsSubstring("2 bytes"));
  CHECK_THAT(safetensors_error(folder, "1234567"), ContainsSubstring("7 bytes"));
  CHECK_THAT(safetensors_error(folder, "<!DOCTYPE html>"), ContainsSubstring("HTML"));
  const auto huge = [](const std::string& shape) {
    return safetensors(R"({"w":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,0]}})", 0);
  };
  CHECK_THAT(safetensors_error(folder, huge("[4294967296,4294967296]")), ContainsSubstring("more bytes than 2^63"));
  CHECK_THAT(safetensors_error(folder, huge("[-1]")), ContainsSubstring("shape"));
  CHECK_THAT(safetensors_error(folder, huge("[18446744073709551615]")), ContainsSubstring("shape"));
  CHECK_THAT(safetensors_error(folder, huge("[1.5]")), ContainsSubstring("shape"));
  CHECK_THAT(safetensors_error(folder, huge("[1,1,1,1,1,1,1,1,1]")), ContainsSubstring("9 dimensions"));
  CHECK_THAT(safetensors_error(folder, huge("3")), ContainsSubstring("shape is not an array"));
}

TEST_CASE("A42: safetensors with duplicate keys, overlaps and holes") {
  const TempFolder folder;
  const auto entry = [](const std::string& name, int begin, int end) {
    return "\"" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(end - begin) + R"(],"data_offsets":[)" + std::to_string(begin) +
           "," + std::to_string(end) + "]}";
  };
  const auto error = [&](const std::string& entries, std::size_t bytes) {
    return safetensors_error(folder, safetensors("{" + entries + "}", bytes));
  };
  CHECK_THAT(error(entry("w", 0, 4) + "," + entry("w", 4, 8), 8), ContainsSubstring("key 'w' twice"));
  CHECK_THAT(error(R"("w":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]})", 0), ContainsSubstring("key 'dtype' twice"));
  CHECK_THAT(error(entry("a", 0, 100) + "," + entry("b", 50, 150), 150),
             ContainsSubstring("'b'") && ContainsSubstring("[50, 150)") && ContainsSubstring("'a'") && ContainsSubstring("[0, 100)"));
  CHECK_THAT(error(entry("a", 0, 100) + "," + entry("b", 108, 150), 150), ContainsSubstring("'b'") && ContainsSubstring("hole of 8"));
  CHECK_THAT(error(entry("a", 0, 100), 108), ContainsSubstring("108 bytes") && ContainsSubstring("cover 100"));
  CHECK_THAT(error(entry("a", 8, 100), 100), ContainsSubstring("hole of 8"));
  CHECK(error(entry("a", 0, 100) + "," + entry("none", 100, 100) + "," + entry("b", 100, 150), 150).empty());
}

TEST_CASE("safetensors headers that are no such headers") {
  const TempFolder folder;
  const auto error = [&](const std::string& header) { return safetensors_error(folder, safetensors(header, 0)); };
  CHECK_THAT(error("[]"), ContainsSubstring("not a JSON object"));
  CHECK_THAT(error("{"), ContainsSubstring("not JSON"));
  CHECK_THAT(error(""), ContainsSubstring("not JSON"));
  CHECK_THAT(error(std::string(100000, '[')), ContainsSubstring("not JSON"));
  CHECK_THAT(error(R"({"w":3})"), ContainsSubstring("'w'") && ContainsSubstring("dtype, shape and data_offsets"));
  CHECK_THAT(error(R"({"w":{"dtype":"F8_E4M3","shape":[0],"data_offsets":[0,0]}})"),
             ContainsSubstring("'w'") && ContainsSubstring("F8_E4M3"));
  CHECK_THAT(error(R"({"w":{"dtype":5,"shape":[0],"data_offsets":[0,0]}})"), ContainsSubstring("dtype 5"));
  CHECK_THAT(error(R"({"w":{"dtype":"F32","shape":[0],"data_offsets":[0]}})"), ContainsSubstring("not [begin, end]"));
  CHECK_THAT(error(R"({"w":{"dtype":"F32","shape":[0],"data_offsets":[4,0]}})"), ContainsSubstring("not [begin, end]"));
  CHECK_THAT(error(R"({"__metadata__":{"a":1}})"), ContainsSubstring("__metadata__ 'a'"));
  CHECK_THAT(error(R"({"__metadata__":"a"})"), ContainsSubstring("__metadata__"));
}

TEST_CASE("safetensors gives back tensors and metadata, in aligned order") {
  const TempFolder folder;
  tl::io::Safetensors content{samples(), {{"epoch", "3"}, {"quote", "\"\n\xc3\xa9"}}};
  content.tensors["bfloat16"] = tl::full({3}, -2.5f, {.dtype = tl::kBFloat16, .device = tl::cpu_device()});
  const std::string path = folder / "a.safetensors";
  tl::io::save_safetensors(path, content);
  const auto back = tl::io::load_safetensors(path);
  CHECK(back.metadata == content.metadata);
  REQUIRE(back.tensors.size() == content.tensors.size());
  for (const auto& [name, tensor] : content.tensors) check_same(back.tensors.at(name), tensor);
  const std::string bytes = file_bytes(path);
  CHECK(static_cast<unsigned char>(bytes[0]) % 8 == 0);
  for (std::size_t n = 0; n < bytes.size(); n += 7) REQUIRE(!safetensors_error(folder, bytes.substr(0, n)).empty());

  CHECK_THROWS_AS(tl::io::save_safetensors(path, {{{"__metadata__", tl::zeros({1}, kCpu)}}, {}}), tl::ValueError);
  CHECK_THROWS_AS(tl::io::save_safetensors(path, {{{"\xff", tl::zeros({1}, kCpu)}}, {}}), tl::ValueError);
  CHECK(file_bytes(path) == bytes);
  tl::io::save_safetensors(path, {});
  CHECK(tl::io::load_safetensors(path).tensors.empty());
}
