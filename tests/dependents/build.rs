//! Both ways to the headers: cxx finds them by itself, cc gets their folder from a variable.

fn main() {
    cxx_build::bridge("src/lib.rs").file("src/bridged.cc").std("c++17").compile("bridged");
    let include = std::env::var("DEP_SYMMETRA_INCLUDE").expect("symmetra exports its include folder");
    cc::Build::new().cpp(true).std("c++17").include(&include).file("src/plain.cc").compile("plain");
    cc::Build::new().cpp(true).std("c++20").include(include).file("src/kernel.cc").compile("kernel");
}
