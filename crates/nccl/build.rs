//! The name by which programs find the library, and the scope of its symbols.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in [
        // Programs made for NCCL look for this name.
        "-soname,libnccl.so.2",
        // The threads of the library outlive a `dlclose`.
        "-z,nodelete",
        // The names of this library are bound to this library, also where the real NCCL was loaded before.
        "-Bsymbolic",
        // The bridges of the library are no part of the interface: a process may hold two copies of them.
        "--exclude-libs,ALL",
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
