//! symmetra as its C++ users meet it: headers that stand alone, a tree installed by `install.sh`,
//! programs built against it with a C++ compiler alone, pkg-config, CMake, and cargo dependents.
//!
//! `CXX` names the compiler, else `c++`. Tests whose tools a machine lacks are skipped, with a note.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/archive.rs"]
mod archive;
#[path = "../support/page.rs"]
mod page;
mod tutorial_cpp;

use std::env;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// The warnings of users' compilers: pkg-config passes the headers by -I, so their warnings are shown to users.
const WARNINGS: [&str; 11] = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wold-style-cast",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    "-Wzero-as-null-pointer-constant",
    "-Werror",
];
/// The allocator as Rust and the test itself call it, for the test that counts its calls.
const COUNTED: &str = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign";
/// A time that no run of a program or tool here comes near.
const PATIENCE: Duration = Duration::from_secs(300);

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn compiler() -> String {
    env::var("CXX").unwrap_or_else(|_| "c++".to_owned())
}

fn is_here(tool: &str) -> bool {
    let here = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !here {
        eprintln!("skipped: no {tool}");
    }
    here
}

/// Runs a command to its end; it must succeed. Gives what it printed.
fn run(command: &mut Command) -> String {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdout = child.stdout.take().unwrap();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{command:?} ran for more than {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let text = reader.join().unwrap().unwrap();
    assert!(status.success(), "{command:?}: {status}\n{text}");
    text
}

/// A tree that the documented command installs.
fn install(name: &str, options: &[&str]) -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&prefix);
    let mut command = Command::new(root().join("install.sh"));
    command.arg("--prefix").arg(&prefix).arg("--archive").arg(archive::archive()).args(options);
    let features = [("gloo", cfg!(feature = "gloo")), ("nvshmem", cfg!(feature = "nvshmem"))];
    let features: Vec<_> = features.into_iter().filter(|(_, built)| *built).map(|(name, _)| name).collect();
    if !features.is_empty() {
        command.args(["--features", &features.join(",")]);
    }
    run(&mut command);
    prefix
}

/// The tree without options, made once.
fn installed() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| install("installed", &[]))
}

/// The shared library's tree, made once.
fn installed_shared() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| install("installed-shared", &["--shared"]))
}

/// The compiler flags of a program: those of pkg-config, or the same flags where pkg-config is missing.
fn flags(prefix: &Path) -> Vec<String> {
    let words = if is_here("pkg-config") {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        run(command.args(["--cflags", "--libs", "--static", "symmetra"]))
    } else {
        let engine = if cfg!(feature = "gloo") { " -lgloo" } else { "" };
        format!("-I{0}/include -L{0}/lib -lsymmetra -lpthread -ldl -lrt -lm{engine}", prefix.display())
    };
    words.split_whitespace().map(str::to_owned).collect()
}

/// Builds a program of the repository against the installed tree alone.
fn build(source: &str, extra: &[&str]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(Path::new(source).file_stem().unwrap());
    let mut command = Command::new(compiler());
    command.current_dir(env!("CARGO_TARGET_TMPDIR")).arg("-std=c++17").args(WARNINGS);
    run(command.arg(root().join(source)).args(flags(installed())).args(extra).arg("-o").arg(&program));
    program
}

/// The command that compiles a text by itself, against the headers in the repository.
fn compilation(compiler: &str, standard: &str, name: &str, text: &str) -> Command {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{compiler}-{name}.cc"));
    fs::write(&source, text).unwrap();
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(WARNINGS).arg("-fsyntax-only");
    command.arg("-I").arg(root().join("include")).arg(&source);
    command
}

/// By each compiler: a function with parameters `parameters` compiles with all the `accepted` calls in it, and with a `refused`
/// call in it gives an error with the words of the call.
fn refuses(standard: &str, header: &str, parameters: &str, accepted: &[&str], refused: &[(&str, &str)]) {
    let name = Path::new(header).file_stem().unwrap().to_str().unwrap();
    for compiler in compilers() {
        // A header that g++ precompiles, because it is compiled once for each refused call.
        let top = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{compiler}-{name}.hh"));
        fs::write(&top, format!("#include \"symmetra/{header}\"\n")).unwrap();
        let program = |call: &str| {
            let using = if header.starts_with("device/") { "symmetra::device" } else { "symmetra" };
            let text = format!(
                "#include \"{compiler}-{name}.hh\"\nusing namespace {using};\nvoid f({parameters}) {{\n  {call};\n}}\n"
            );
            let mut command = compilation(compiler, standard, name, &text);
            command.arg("-Wno-unused-parameter");
            command
        };
        if compiler == "g++" {
            let mut command = Command::new(compiler);
            command.arg(format!("-std={standard}")).args(WARNINGS).arg("-Wno-unused-parameter");
            command.arg("-I").arg(root().join("include")).args(["-x", "c++-header"]).arg(&top);
            run(command.arg("-o").arg(top.with_extension("hh.gch")));
        }
        run(&mut program(&accepted.join(";\n  ")));
        for (call, why) in refused {
            let output = program(call).output().unwrap();
            let words = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{call} compiles");
            assert!(words.contains(why), "{call}: {words}");
        }
    }
}

/// Whether a run tries all there is.
fn full() -> bool {
    env::var_os("SYMMETRA_TEST_FULL").is_some()
}

/// How many kinds of library CMake links: the static one, and the shared one where everything is to run.
fn kinds() -> usize {
    if full() { 2 } else { 1 }
}

/// The first of the compilers that is here, and the other where everything is to run.
fn compilers() -> impl Iterator<Item = &'static str> {
    ["g++", "clang++"].into_iter().filter(|compiler| is_here(compiler)).take(if full() { 2 } else { 1 })
}

/// The headers that programs include, without those for kernels only. In a short run only the headers that include all
/// others.
fn public_headers() -> Vec<String> {
    let mut headers: Vec<String> = fs::read_dir(root().join("include/symmetra"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".hpp"))
        .collect();
    assert!(headers.len() >= 12, "{headers:?}");
    headers.push("device/abi.hpp".to_owned());
    for header in &mut headers {
        header.insert_str(0, "symmetra/");
    }
    headers.push("p2p_allreduce.hpp".to_owned());
    headers.extend(["all_reduce", "bootstrap", "device", "memory"].map(|name| format!("p2p_allreduce/{name}.hpp")));
    headers.push("p2p_allreduce/shim/hip/hip_runtime.h".to_owned());
    if !full() {
        headers.retain(|header| ["symmetra/symmetra.hpp", "p2p_allreduce.hpp"].contains(&header.as_str()));
    }
    headers
}

#[test]
fn every_public_header_stands_alone() {
    let headers = public_headers();
    let kernels = ["bulk.cuh", "peer.cuh", "platform.hpp", "signal.cuh", "wait.cuh", "heap.cuh", "multicast.cuh"];
    let kernels = kernels.map(|name| format!("symmetra/device/{name}"));
    let kernels = if full() { &kernels[..] } else { &kernels[5..] };
    for compiler in compilers() {
        let all = headers.iter().map(|header| ("c++17", header)).chain(kernels.iter().map(|header| ("c++20", header)));
        for (standard, header) in all {
            // Twice: it guards itself.
            let include = format!("#include \"{header}\"\n");
            run(&mut compilation(compiler, standard, "header", &include.repeat(2)));
        }
    }
}

/// Another ABI would link and crash: its structs have equal names.
#[test]
fn every_public_header_refuses_another_standard_and_another_abi() {
    let refused = [
        ("c++14", "-DNOTHING", "the headers of symmetra need C++17: -std=c++17"),
        ("c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", "compile without -D_GLIBCXX_USE_CXX11_ABI=0"),
        ("c++17", "-D_GLIBCXX_DEBUG", "compile without -D_GLIBCXX_DEBUG"),
    ];
    for compiler in compilers() {
        // Plain data has no string or container.
        for header in public_headers().iter().filter(|header| !header.ends_with("device/abi.hpp")) {
            for (standard, flag, why) in refused {
                let mut command = compilation(compiler, standard, "abi", &format!("#include \"{header}\"\n"));
                let output = command.args([flag, "-Wfatal-errors", "-DP2P_ALLREDUCE_NO_MPI"]).output().unwrap();
                let words = String::from_utf8_lossy(&output.stderr);
                assert!(!output.status.success(), "{header} compiles by {compiler} -std={standard} {flag}");
                assert!(words.contains(why), "{header} by {compiler} -std={standard} {flag}: {words}");
            }
        }
    }
}

/// Without MPI the compiler's error states what MPIBootstrap needs where the program makes one, not that the name is
/// unknown.
#[test]
fn a_bootstrap_by_mpi_without_mpi_says_what_is_missing() {
    let text = "#include \"p2p_allreduce.hpp\"\nvoid f() { p2p_allreduce::MPIBootstrap ranks; }\n";
    for compiler in compilers() {
        let mut command = compilation(compiler, "c++17", "mpi", text);
        let output = command.arg("-DP2P_ALLREDUCE_NO_MPI").output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && words.contains("MPIBootstrap needs MPI: compile by mpicxx"), "{words}");
    }
}

/// Inputs may be const, and an output that is const is refused with these words.
#[test]
fn const_memory_is_an_input_alone() {
    let parameters = "const Coordinator& c, const float* in, float* out, const Stream& s";
    let inputs = [
        "c.all_reduce(in, out, 4, s)",
        "c.all_reduce({in, 4}, {out, 4}, s)",
        "c.all_reduce({in, 4, Dtype::kF16}, {out, 4, Dtype::kF16}, s)",
        "c.bind_all_reduce({in, 4}, {out, 4}).enqueue(s)",
        "c.all_gather({in, 4}, {out, 8}, s)",
        "c.all_gather_v({in, 4}, {out, 8}, {4, 4}, s)",
        "c.all_gather_along(0, {4}, {in, 4}, {out, 8}, s)",
        "c.reduce_scatter({in, 8}, {out, 4}, Reduction::kSum, s)",
        "c.reduce_scatter_v({in, 8}, {out, 4}, {4, 4}, Reduction::kSum, s)",
        "c.reduce_scatter_along(0, {8}, {in, 8}, {out, 4}, Reduction::kSum, s)",
        "c.all_to_all({in, 4}, {out, 4}, s)",
        "c.all_to_all_v({in, 4}, {2, 2}, {out, 4}, {2, 2}, s)",
        "c.reduce({in, 4}, Operand(out, 4), Reduction::kSum, 0, s)",
        "c.gather({in, 4}, std::nullopt, 0, s)",
        "c.scatter(ConstOperand(in, 8), {out, 4}, 0, s)",
        "c.shift({in, 4}, {out, 4}, 1, s)",
        "c.batch({Message::send({in, 4}, 1), c.to_next({in, 4})}, s)",
        "c.send_next({in, 4}, s)",
        "c.low_contention_all_gather({in, 4}, {out, 8}, s).wait(s)",
        "c.low_contention_reduce_scatter({in, 8}, {out, 4}, Reduction::kSum, s).wait(s)",
        "(void)NamedTensor::borrowed_const({in, 4}, {2, 2})",
        "(void)c.experts({2, 1, 4, 1}).dispatch(Routing({in, 1}), {in, 4}, Received({out, 4}), s)",
        "const Product p(2, 2, Numeric::f32())",
        "Multiplier(c.device()).enqueue(p, 2, {{in, 4}}, {{in, 4}}, {out, 4}, s)",
        "c.plan_all_gather_matmul({2, 2}, 0, {p}).enqueue({{in, 4}}, Operand(out, 8), {{ConstOperand(in, 4), {out, 8}}}, s)",
        "c.plan_matmul_reduce_scatter({2, 2}, 0, p).enqueue({{in, 4}}, Factor({in, 4}).biased({in, 2}), {out, 2}, s)",
        "c.plan_matmul_all_reduce({2, 2}, p, Way::kSequence).enqueue({{in, 4}}, {{in, 4}}, {out, 4}, s)",
    ];
    let outputs = [
        "c.all_reduce(out, in, 4, s)",
        "c.all_reduce({in, 4}, s)",
        "c.all_reduce({out, 4}, {in, 4}, s)",
        "c.all_gather({out, 4, Dtype::kF16}, {in, 8, Dtype::kF16}, s)",
        "c.broadcast({in, 4}, 0, s)",
        "c.gather({in, 4}, Operand(in, 8), 0, s)",
        "c.batch({Message::receive({in, 4}, 1)}, s)",
        "(void)NamedTensor::borrowed({in, 4}, {2, 2})",
        "(void)Received({in, 4})",
        "Multiplier(c.device()).enqueue(Product(2, 2, Numeric::f32()), 2, {{in, 4}}, {{in, 4}}, {in, 4}, s)",
    ];
    let refused = outputs.map(|call| (call, "symmetra writes to this operand, but its memory is const"));
    refuses("c++17", "symmetra.hpp", parameters, &inputs, &refused);
}

/// Memory of another rank is accessed at system scope, and an access has an order that it can have.
#[test]
fn kernels_name_orders_and_scopes_that_there_are() {
    let accepted = [
        "fetch_add<Order::kRelaxed, Scope::kDevice>(h, p, 1)",
        "fetch_add<Order::kRelaxed, Scope::kSystem>(h, p, Rank{1}, 1)",
        "store_atomic<Order::kRelease, Scope::kBlock>(h, p, 1)",
        "compare_exchange<Order::kRelaxed, Scope::kDevice>(h, p, e, 1)",
        "fetch_add(h, q, Rank{1}, 0.5f)",
    ];
    let (scope, order) = ("memory of another rank is accessed at system scope", ["a load is", "a store is", "a sum"]);
    let refused = [
        ("fetch_add<Order::kRelaxed, Scope::kDevice>(h, p, Rank{1}, 1)", scope),
        ("fetch_max<Order::kRelaxed, Scope::kBlock>(h, p, Rank{1}, 1)", scope),
        ("exchange<Order::kRelaxed, Scope::kDevice>(h, p, Rank{1}, 1)", scope),
        ("add<Order::kRelaxed, Scope::kDevice>(h, p, Rank{1}, 1)", scope),
        ("load_atomic<Order::kAcquire, Scope::kDevice>(h, p, Rank{1})", scope),
        ("store_atomic<Order::kRelease, Scope::kDevice>(h, p, Rank{1}, 1)", scope),
        ("compare_exchange<Order::kRelaxed, Scope::kDevice>(h, p, Rank{1}, e, 1)", scope),
        ("load_atomic<Order::kRelease>(h, p, Rank{1})", order[0]),
        ("store_atomic<Order::kAcquire>(h, p, Rank{1}, 1)", order[1]),
        ("add<Order::kAcquireRelease>(h, p, Rank{1}, 1)", order[2]),
        ("fetch_max(h, q, Rank{1}, 0.5f)", "atomic accesses are of integers"),
        ("put(h, p, q, 4, Rank{1})", "Rank"),
        ("put_signal(h, p, q, 4, Rank{1}, Channel{0})", "Rank"),
        ("wait_signal(h, Channel{0}, Rank{1})", "Rank"),
        ("struct { char c[3]; } s[1]; (void)load(h, s, Rank{1})", "a load moves 1, 2, 4, 8 or 16 bytes"),
    ];
    refuses("c++20", "device/heap.cuh", "const Heap& h, uint32_t* p, float* q, uint32_t e", &accepted, &refused);
}

/// Multicast accesses are by the functions of the view, which gives no pointer to make another access by.
#[test]
fn no_ordinary_access_goes_through_a_multicast_view() {
    let parameters = "const Multicast<float>& f32, const Multicast<uint32_t>& u32, const Multicast<uint16_t>& bits, \
        const Multicast<uint16_t, Adds::kF16>& f16, const MulticastData& data, const SignalPad& pad";
    let accepted = [
        "f32.store(1, f32.load_sum(0))",
        "f16.store(1, f16.load_sum(0))",
        "bits.store(0, Packet<uint16_t>{})",
        "u32.add(0, 1)",
        "u32.add<Order::kRelease>(0, 1)",
        "f32.signal(pad, Channel{0})",
        "(void)Multicast<float>(data)",
    ];
    // For code that the language refuses, each compiler has its own message, which names the view's type.
    let refused = [
        ("*f32 = 1.0f", "Multicast<"),
        ("f32[0] = 1.0f", "Multicast<"),
        ("f32->x = 1.0f", "Multicast<"),
        ("float* p = f32; (void)p", "Multicast<"),
        ("void* p = u32; (void)p", "Multicast<"),
        ("auto p = static_cast<float*>(f32); (void)p", "Multicast<"),
        ("auto p = reinterpret_cast<float*>(f32); (void)p", "Multicast<"),
        ("Multicast<float> g = data; (void)g", "Multicast<"),
        ("f32.store(0, 1.0f)", "1.0"),
        ("f32.add(0, 1.0f)", "multicast adds to elements of uint32_t"),
        ("u32.add<Order::kAcquire>(0, 1)", "a multicast sum is relaxed or releases"),
        ("(void)bits.load_sum(0)", "specify how sums add the type"),
        ("(void)Multicast<double>(data).load_sum(0)", "specify how sums add the type"),
        ("(void)Multicast<float, Adds::kF16>(data)", "another size than what is added"),
        ("struct Three { char c[3]; }; (void)Multicast<Three>(data)", "whole elements"),
    ];
    refuses("c++20", "device/multicast.cuh", parameters, &accepted, &refused);
}

#[test]
fn public_headers_show_nothing_of_rust_or_cuda() {
    for entry in fs::read_dir(root().join("include/symmetra")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for line in text.lines().filter(|line| line.starts_with("#include")) {
            let allowed =
                line.starts_with("#include <") && !line.contains(".h>") || line.starts_with("#include \"symmetra/");
            assert!(allowed, "{}: {line}", path.display());
        }
        assert!(!text.contains("rust::"), "{} names rust::", path.display());
    }
}

/// Called as a plain function: a thread of the CPU is a block of one thread.
#[test]
fn kernels_of_users_run_on_the_host() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join("plain_block");
    let mut command = Command::new(compiler());
    command.current_dir(folder).args(["-std=c++20", "-pthread"]).args(WARNINGS).arg("-I").arg(root().join("include"));
    run(command.arg(root().join("tests/cpp/plain_block.cc")).arg("-o").arg(&program));
    assert_eq!(run(&mut Command::new(program)), "3 blocks met\n");
}

#[test]
fn the_version_is_that_of_the_package() {
    let header = fs::read_to_string(root().join("include/symmetra/version.hpp")).unwrap();
    let numbers = ["MAJOR", "MINOR", "PATCH"].map(|part| {
        let name = format!("#define SYMMETRA_VERSION_{part} ");
        header.lines().find_map(|line| line.strip_prefix(&name)).unwrap().to_owned()
    });
    assert_eq!(numbers.join("."), env!("CARGO_PKG_VERSION"));
}

#[test]
fn every_public_class_works() {
    let text = run(&mut Command::new(build("tests/cpp/api_test.cc", &["-g"])));
    assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), 25, "{text}");
}

#[test]
fn enqueued_copies_work() {
    let text = run(&mut Command::new(build("tests/cpp/copy_test.cc", &["-g"])));
    assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), 4, "{text}");
}

#[test]
fn kernels_on_the_memory_of_all_ranks_work() {
    let text = run(&mut Command::new(build("tests/cpp/heap_test.cc", &["-std=c++20", "-g"])));
    assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), 4, "{text}");
}

/// In a build without the feature, a group reports that it has none.
#[test]
fn kernels_by_multicast_work() {
    let mut program = Command::new(build("tests/cpp/multicast_test.cc", &["-std=c++20", "-g"]));
    let built = cfg!(feature = "multicast");
    let text = run(if built { program.arg("with") } else { &mut program });
    assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), if built { 2 } else { 1 }, "{text}");
}

#[test]
fn experts_work() {
    let text = run(&mut Command::new(build("tests/cpp/experts_test.cc", &["-g"])));
    assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), 10, "{text}");
}

#[test]
fn products_work() {
    let text = run(&mut Command::new(build("tests/cpp/matmul_test.cc", &["-g"])));
    assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), 5, "{text}");
}

/// Ranks as processes, over a library with NVSHMEM's functions; in a build without the feature, the error that ranks
/// get.
#[test]
fn memory_of_nvshmem_works() {
    let program = build("tests/cpp/nvshmem_test.cc", &["-g"]);
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvshmem/libnvshmem_host.so.3");
    let mut command = Command::new(env!("CARGO_BIN_EXE_symmetra"));
    command.args(["launch", "--no-prefix", "-n", "3", "--nvshmem", "--"]).arg(&program);
    // Memory of the host device is a whole number of pages.
    command.env("NVSHMEM_CUMEM_GRANULARITY", "4096");
    let built = cfg!(feature = "nvshmem");
    if built {
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        let mut fake = Command::new(compiler());
        fake.args(["-std=c++17", "-shared", "-fPIC", "-pthread"]).arg(root().join("tests/nvshmem/fake.cc"));
        run(fake.args(["-ldl", "-o"]).arg(&library));
        command.arg(&library);
    }
    assert_eq!(run(&mut command), if built { "with ok\n" } else { "without ok\n" }.repeat(3));
}

#[test]
fn grids_work() {
    let mut program = Command::new(build("tests/cpp/mixed_test.cc", &["-g"]));
    let hosts = cfg!(feature = "gloo");
    let text = run(if hosts { program.arg("hosts") } else { &mut program });
    assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), if hosts { 6 } else { 3 }, "{text}");
}

#[test]
fn a_program_gets_the_lines_of_the_log_or_standard_error_does() {
    let mut program = Command::new(build("tests/cpp/log_test.cc", &["-g"]));
    let run = program.env("SYMMETRA_LOG", "info").env("SYMMETRA_SECRTE", "ab").output().unwrap();
    let words = String::from_utf8(run.stderr).unwrap();
    assert_eq!(String::from_utf8(run.stdout).unwrap(), "ok\n", "{words}");
    let (with, without) = words.split_once("without a sink:\n").unwrap();
    assert_eq!(with, "");
    assert!(without.contains("Z INFO symmetra::environment["), "{without}");
    assert!(!without.contains("SYMMETRA_SECRTE"), "said once: {without}");
}

#[test]
fn parallel_groups_work() {
    let text = run(&mut Command::new(build("tests/cpp/environment_test.cc", &["-g"])));
    assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), 12, "{text}");
    let between = text.matches("an engine between hosts").count();
    assert_eq!(between, if cfg!(feature = "gloo") { 2 } else { 0 }, "{text}");
}

#[test]
fn every_failure_is_a_typed_error() {
    let text = run(&mut Command::new(build("tests/cpp/error_test.cc", &["-g", COUNTED])));
    assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), 12, "{text}");
}

/// Under `mpirun` the same program runs in `.ci/mpi`, in every world.
#[test]
fn programs_of_the_p2p_allreduce_api_work() {
    launch_p2p("tests/p2p/every_call.cc", if full() { &[1, 2, 3, 5, 8] } else { &[1, 3] });
}

#[test]
fn failures_of_the_p2p_allreduce_api_are_typed_and_bounded() {
    launch_p2p("tests/p2p/failures.cc", &[1, 3]);
}

fn launch_p2p(source: &str, worlds: &[usize]) {
    let program = build(source, &["-O1", "-DP2P_ALLREDUCE_NO_MPI"]);
    for world in worlds {
        let mut command = Command::new(env!("CARGO_BIN_EXE_symmetra"));
        let text = run(command.args(["launch", "-n", &world.to_string(), "--"]).arg(&program));
        for rank in 0..*world {
            assert!(text.contains(&format!("rank {rank} ok")), "{world} ranks: {text}");
        }
    }
}

/// With the suppressions that are installed ThreadSanitizer is silent about the library, and finds a race of the program.
#[test]
fn thread_sanitizer_finds_races_of_the_program_alone() {
    let run = |source: &str| {
        let mut command = Command::new(build(source, &["-g1", "-O1", "-fsanitize=thread"]));
        let file = installed().join("share/symmetra/tsan.supp");
        command.env("TSAN_OPTIONS", format!("suppressions={}", file.display())).output().unwrap()
    };
    let silent = run("tests/cpp/thread_sanitizer/silent.cc");
    assert!(silent.status.success(), "{}", String::from_utf8_lossy(&silent.stderr));
    let racy = run("tests/cpp/thread_sanitizer/racy.cc");
    let words = String::from_utf8_lossy(&racy.stderr);
    assert!(!racy.status.success() && words.contains("data race") && words.contains("racy.cc"), "{words}");
}

#[test]
fn the_examples_build_against_the_installed_tree() {
    assert_eq!(run(&mut Command::new(build("examples/cpp/twenty_lines.cc", &[]))), "2\n2\n");
    let program = build("examples/cpp/all_reduce.cc", &[]);
    let mut lines: Vec<String> = run(Command::new(program).arg("3")).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["rank 0: 9.000000", "rank 1: 9.000000", "rank 2: 9.000000"]);
}

/// One thread calls for all devices, as the page on Rust engines shows.
#[test]
fn one_thread_sums_for_all_devices_of_an_engine() {
    let program = build("examples/cpp/backends.cc", &["-pthread"]);
    for devices in ["2", "4"] {
        assert_eq!(run(Command::new(&program).arg(devices)), format!("{devices} devices: 1000 sums\n"));
    }
}

/// `docs/porting.md` shows both classes as they are there.
#[test]
fn a_class_of_an_engine_and_the_one_in_its_place_are_right() {
    let text = fs::read_to_string(root().join("examples/cpp/porting.cc")).unwrap();
    let page = fs::read_to_string(root().join("docs/porting.md")).unwrap();
    let classes: Vec<&str> =
        text.split("\nclass ").skip(1).map(|class| class.split_once("\n};\n").unwrap().0).collect();
    assert_eq!(classes.len(), 2);
    for class in classes {
        assert!(
            page.contains(&format!("```cpp\nclass {class}\n}};\n```")),
            "docs/porting.md shows another class than\n{class}"
        );
    }
    let program = build("examples/cpp/porting.cc", &[]);
    for ranks in [1, 2, 4] {
        let text = run(Command::new(&program).arg(ranks.to_string()));
        assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), 2 * ranks, "{text}");
    }
}

/// Its kernels run on the CPU, in blocks of several threads.
#[test]
fn the_example_of_kernels_is_right() {
    let program = build("examples/cpp/gpu_initiated.cc", &["-std=c++20"]);
    for ranks in [1, 3, 4] {
        let text = run(Command::new(&program).arg(ranks.to_string()));
        assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), 6 * ranks, "{text}");
        assert!(!text.contains("ratio"), "{text}");
    }
    let text = run(Command::new(&program).args(["2", "--time"]));
    assert_eq!(text.lines().filter(|line| line.ends_with(" ok")).count(), 8 * 2, "{text}");
    let ratio: f64 = text.lines().find_map(|line| line.split_once("ratio ")).unwrap().1.parse().unwrap();
    assert!(ratio > 0.0, "{text}");
}

/// Every layout, on the CPU.
#[test]
fn the_engine_is_right_in_every_layout() {
    let program = build("examples/cpp/tensor_parallel_mlp.cc", &["-O2"]);
    for (ranks, layout) in [
        ("8", "--tp 8"),
        ("8", "--tp 4 --dp 2"),
        ("8", "--tp 2 --pp 2 --dp 2"),
        ("3", "--pp 3"),
        ("4", "--tp 2 --pp 2 --fp8"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_symmetra"));
        command.args(["launch", "--no-prefix", "-n", ranks, "--"]).arg(&program).args(layout.split(' '));
        command.args("--host --blocks 3 --hidden 32 --intermediate 96 --batch 5".split(' '));
        let text = run(command.stdin(Stdio::null()));
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("rank ")).collect();
        assert_eq!(lines.len().to_string(), ranks, "{text}");
        for line in lines {
            let number = |name: &str| -> f64 {
                let (_, rest) = line.split_once(name).unwrap();
                rest.trim_start().split([',', ' ']).next().unwrap().parse().unwrap()
            };
            let (error, bound) = (number("error"), number("bound"));
            // Codes have the error of codes, and values that of f32.
            let (least, most) = if layout.contains("--fp8") { (bound / 100.0, 0.5) } else { (0.0, 1e-4) };
            assert!(error > least && error <= bound && bound < most, "{line}");
        }
    }
}

/// Three ranks, of which some have more experts than others.
#[test]
fn the_layer_of_experts_is_right() {
    let program = build("examples/cpp/mixture_of_experts.cc", &["-O2"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_symmetra"));
    command.args(["launch", "--no-prefix", "-n", "3", "--"]).arg(&program);
    command.args("--host --experts 5 --hidden 24 --intermediate 40 --tokens 5".split(' '));
    let text = run(command.stdin(Stdio::null()));
    assert_eq!(text.lines().filter(|line| line.contains(": error ")).count(), 3, "{text}");
}

/// Its words, in another folder, and with the tree that is installed already.
#[test]
fn the_readme_builds_a_program() {
    if !is_here("pkg-config") {
        return;
    }
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (_, words) = readme.split_once("./install.sh --prefix /tmp/symmetra\n").unwrap();
    let (words, _) = words.split_once("```").unwrap();
    let words = words.replace("/tmp/symmetra", installed().to_str().unwrap());
    let words = words.replace("examples/", &format!("{}/examples/", root().display()));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    fs::create_dir_all(&folder).unwrap();
    let text = run(Command::new("sh").current_dir(folder).args(["-e", "-c", &words]));
    assert_eq!(text.matches(": 9.000000").count(), 3, "{words}\n{text}");
}

#[test]
fn the_examples_are_as_short_as_promised() {
    for (name, most) in [("twenty_lines", 20), ("all_reduce", 60)] {
        let text = fs::read_to_string(root().join(format!("examples/cpp/{name}.cc"))).unwrap();
        let code = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
        let lines = code.count();
        assert!(lines <= most, "{name}.cc has {lines} lines of code, at most {most} were promised");
    }
}

#[test]
fn the_readme_shows_what_an_engine_adds() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let example = fs::read_to_string(root().join("examples/cpp/all_reduce.cc")).unwrap();
    let start = example.find("// The engine keeps its bootstrap").unwrap();
    let end = start + example[start..].find("\n}\n").unwrap();
    assert!(readme.contains(&example[start..end]), "README.md does not hold this part of examples/cpp/all_reduce.cc");
}

/// Builds the short example as a CMake project, which gets its target by `package`, and runs it.
fn cmake(name: &str, package: &str, settings: &[String]) {
    if !is_here("cmake") {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let project = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(consumer CXX)\n{package}\n\
         add_executable(consumer {})\ntarget_link_libraries(consumer symmetra::symmetra)\n",
        root().join("examples/cpp/twenty_lines.cc").display(),
    );
    fs::write(folder.join("CMakeLists.txt"), project).unwrap();
    run(Command::new("cmake").current_dir(&folder).args(["-S", ".", "-B", "build"]).args(settings));
    run(Command::new("cmake").current_dir(&folder).args(["--build", "build"]));
    assert_eq!(run(&mut Command::new(folder.join("build/consumer"))), "2\n2\n");
}

#[test]
fn cmake_finds_the_package() {
    let package = format!("find_package(symmetra {} REQUIRED)", env!("CARGO_PKG_VERSION"));
    for (name, prefix) in
        [("cmake-static", installed()), ("cmake-shared", installed_shared())].into_iter().take(kinds())
    {
        cmake(name, &package, &[format!("-DCMAKE_PREFIX_PATH={}", prefix.display())]);
    }
}

/// Which requests for a version the installed package meets. Ranges need CMake 3.19.
#[test]
fn cmake_finds_the_versions_that_programs_ask_for() {
    if !is_here("cmake") {
        return;
    }
    let [major, minor, patch] =
        [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")]
            .map(|number| number.parse::<u32>().unwrap());
    let (line, this) = (format!("{major}.{minor}"), format!("{major}.{minor}.{patch}"));
    let next = format!("{major}.{}", minor + 1);
    let met = [
        String::new(),
        major.to_string(),
        line.clone(),
        this.clone(),
        format!("{this} EXACT"),
        format!("{line}...{next}"),
        format!("{line}...<{next}"),
        format!("{major}...{this}"),
    ];
    let unmet = [
        (major + 1).to_string(),
        next.clone(),
        format!("{this}.1"),
        format!("{next}...{}", major + 1),
        format!("{major}.0...<{this}"),
    ];
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cmake-versions");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    // In a function of its own: a package that is found once is found again.
    let ask = |request: &String| format!("ask({request})\n");
    let project = format!(
        "cmake_minimum_required(VERSION 3.19)\nproject(versions CXX)\nfunction(ask)\n\
         find_package(symmetra ${{ARGV}} QUIET)\nmessage(\"asked (${{ARGV}}): ${{symmetra_FOUND}}\")\nendfunction()\n{}",
        unmet.iter().chain(&met).map(ask).collect::<String>()
    );
    fs::write(folder.join("CMakeLists.txt"), project).unwrap();
    let mut command = Command::new("sh");
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", installed().display());
    let text = run(command.current_dir(&folder).args(["-c", "cmake -S . -B build \"$0\" 2>&1"]).arg(prefix));
    for (requests, found) in [(&met[..], "1"), (&unmet[..], "0")] {
        for request in requests {
            let line = format!("asked ({}): {found}", request.replace(' ', ";"));
            assert!(text.lines().any(|said| said == line), "`{line}` is not in: {text}");
        }
    }
}

/// Lists of features as cargo accepts them. Programs link Gloo, so the pkg-config file names it.
#[test]
fn features_are_separated_by_commas_or_spaces() {
    for (name, features) in [("commas", "nccl,gloo"), ("spaces", "nccl gloo"), ("both", " gloo, nccl ")] {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("installed-{name}"));
        let _ = fs::remove_dir_all(&prefix);
        let mut command = Command::new(root().join("install.sh"));
        command.arg("--prefix").arg(&prefix).arg("--archive").arg(archive::archive());
        run(command.args(["--features", features]));
        let words = fs::read_to_string(prefix.join("lib/pkgconfig/symmetra.pc")).unwrap();
        assert!(words.contains("-lgloo"), "{features}: {words}");
    }
}

/// Regression test: another linker was used silently.
#[test]
fn a_linker_that_is_missing_is_an_error() {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed-without-linker");
    let mut command = Command::new(root().join("install.sh"));
    command.arg("--prefix").arg(&prefix).arg("--archive").arg(archive::archive()).env("LD", "/nowhere/ld");
    let end = command.output().unwrap();
    let words = String::from_utf8_lossy(&end.stderr);
    assert!(!end.status.success() && words.contains("LD is /nowhere/ld"), "{end:?}");
    assert!(!prefix.join("lib/libsymmetra.a").exists());
}

/// But for what cargo builds, which is here already.
#[test]
fn cmake_builds_the_library_by_fetch_content() {
    let package = format!(
        "include(FetchContent)\nFetchContent_Declare(symmetra SOURCE_DIR {})\nFetchContent_MakeAvailable(symmetra)",
        root().display()
    );
    for shared in ["OFF", "ON"].into_iter().take(kinds()) {
        let features = if cfg!(feature = "gloo") { "gloo" } else { "" };
        let settings = [
            format!("-DSYMMETRA_ARCHIVE={}", archive::archive().display()),
            format!("-DSYMMETRA_FEATURES={features}"),
            format!("-DSYMMETRA_SHARED={shared}"),
        ];
        cmake(&format!("cmake-fetch-{shared}"), &package, &settings);
    }
}

/// The names that a library defines for others.
fn names(library: &Path, options: &[&str]) -> Vec<String> {
    let text =
        run(Command::new("nm").args(["--defined-only", "--extern-only", "--format=posix"]).args(options).arg(library));
    text.lines().filter(|line| !line.ends_with(':')).map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn only_names_of_the_public_headers_are_visible() {
    let libraries = [
        names(&installed().join("lib/libsymmetra.a"), &[]),
        names(&installed_shared().join("lib/libsymmetra.so"), &["--dynamic"]),
    ];
    for names in libraries {
        assert!(names.len() > 100, "{names:?}");
        for name in names {
            // A name in Rust ends in a hash.
            let public = name.contains("8symmetra") && name.starts_with("_Z") && !name.contains("17h");
            assert!(public, "{name} is visible");
        }
    }
}

/// A program may hold another release of Rust's library.
#[test]
fn programs_may_have_names_of_rust_themselves() {
    let theirs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("theirs.cc");
    let text = "#include <cstdlib>\nextern \"C\" {\nvoid rust_eh_personality();\nvoid rust_eh_personality() { std::abort(); }\n}\n";
    fs::write(&theirs, text).unwrap();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-names");
    let mut command = Command::new(compiler());
    command.arg("-std=c++17").arg(root().join("examples/cpp/twenty_lines.cc")).arg(theirs);
    run(command.args(flags(installed())).arg("-o").arg(&program));
    assert_eq!(run(&mut Command::new(program)), "2\n2\n");
}

#[test]
fn debug_information_is_installed_on_request_alone() {
    let sections = |prefix: &Path| run(Command::new("readelf").args(["-SW"]).arg(prefix.join("lib/libsymmetra.a")));
    assert!(!sections(installed()).contains(".debug_"));
    assert!(sections(&install("installed-debug", &["--debug"])).contains(".debug_line"));
}

#[test]
fn the_shared_library_has_a_version() {
    let prefix = installed_shared();
    let dynamic = run(Command::new("readelf").arg("-dW").arg(prefix.join("lib/libsymmetra.so")));
    let soname = concat!("libsymmetra.so.", env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    assert!(dynamic.contains(&format!("[{soname}]")), "{dynamic}");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("with-shared");
    let mut command = Command::new(compiler());
    command.arg("-std=c++17").arg(root().join("examples/cpp/twenty_lines.cc")).args(flags(prefix));
    run(command.arg("-o").arg(&program));
    assert_eq!(run(Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib"))), "2\n2\n");
}

/// The members of this workspace that `cargo test` compiles, and the dependent.
const PACKAGES: [&str; 7] = [
    "dependent",
    "symmetra",
    "symmetra-bench",
    "symmetra-cli",
    "symmetra-harness",
    "symmetra-reference",
    "symmetra-ring",
];

/// A member of this workspace, selected with all others: Cargo picks the features that they have together, and compiles the
/// dependent alone.
#[test]
fn crates_that_depend_on_symmetra_find_its_headers() {
    let target = env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--offline", "--locked", "--test", "calls"]);
    command.args(PACKAGES.map(|package| ["-p", package]).as_flattened());
    let text = run(command.current_dir(root()).arg("--target-dir").arg(target));
    assert!(text.contains("3 passed; 0 failed"), "{text}");
}
