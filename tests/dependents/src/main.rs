//! Calls symmetra from Rust, from C++ behind a bridge, and from C++ behind C.

#[cxx::bridge]
mod bridge {
  unsafe extern "C++" {
    include !("dependent/src/bridged.hpp");
    fn reduced(value : f32)->Result<f32>;
  }
}

unsafe extern "C" { safe fn plain_required_bytes(world_size : usize)->u64; }

fn main() {
  let config = symmetra::Config::default();
  assert_eq !(symmetra::required_bytes(8, &config), Ok(plain_required_bytes(8)));
  assert_eq !(bridge::reduced(2.5).unwrap(), 2.5);
  println !("dependents ok");
}
