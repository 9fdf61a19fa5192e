// Multiplies two matrices, goes back through the product and meets an error: what a program outside the tree links and includes.
#include <tensorlite/tensorlite.hpp>

#include <iostream>

namespace tl = tensorlite;

int main() {
  const tl::Tensor a{{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}};
  tl::Tensor b{{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}};
  b.requires_grad_();
  const tl::Tensor product = tl::matmul(a, b);
  product.sum().backward();
  std::cout << product << '\n' << b.grad() << '\n';
  try {
    tl::matmul(a, a);
  } catch (const tl::ShapeError& error) {
    std::cout << error.what() << '\n';
    return product[1][1].item<float>() == 64.f && b.grad()[0][0].item<float>() == 5.f ? 0 : 1;
  }
  return 1;
}
