//! Builds the C++ half: plan -> headers -> bridge -> backends. Uses no GPU and no network.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Set where nothing is linked: the first for `cargo check`, clippy, rustdoc and rust-analyzer, the other by docs.rs. A
/// build script cannot find out for which command it runs.
const RUST_ALONE: [&str; 2] = ["SYMMETRA_RUST_ALONE", "DOCS_RS"];

/// The chips for which the cfg `symmetra_own_code` is set if their code is compiled only for them: code for other chips
/// lacks sums of 8-bit floats by multicast.
const OWN_CODE: [&str; 2] = ["100", "103"];

/// All decisions about the build.
struct Plan {
    root: PathBuf,
    cuda: Option<Cuda>,
    hip: Option<Hip>,
    /// Whether to serve ranks on several hosts.
    gloo: bool,
    /// Whether kernels and driver calls for NVIDIA GPUs support multicast. The host device always does.
    multicast: bool,
    /// Whether kernels for GPUs can time calls. The host device always can.
    timing: bool,
}

/// An nvcc toolchain and the architectures to build for.
struct Cuda {
    home: PathBuf,
    archs: Vec<String>,
}

/// ROCm's headers, a clang that compiles for AMD GPUs, and the architectures to build for.
struct Hip {
    include: PathBuf,
    clang: PathBuf,
    archs: Vec<String>,
}

fn main() {
    if let Err(error) = Plan::new().and_then(|plan| plan.run()) {
        println!("cargo::error={error}");
        std::process::exit(1);
    }
}

impl Plan {
    fn new() -> Result<Self> {
        let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
        let has = |feature: &str| !rust_alone() && env::var_os(feature).is_some();
        let cuda = has("CARGO_FEATURE_CUDA").then(Cuda::find).transpose()?;
        let hip = has("CARGO_FEATURE_HIP").then(Hip::find).transpose()?;
        let gloo = env::var_os("CARGO_FEATURE_GLOO").is_some();
        let multicast = env::var_os("CARGO_FEATURE_MULTICAST").is_some();
        let timing = env::var_os("CARGO_FEATURE_TIMING").is_some();
        Ok(Self { root, cuda, hip, gloo, multicast, timing })
    }

    fn run(&self) -> Result<()> {
        for folder in ["cpp", "kernels", "include"] {
            println!("cargo::rerun-if-changed={folder}");
        }
        self.headers();
        println!(
            "cargo::rustc-check-cfg=cfg(symmetra_own_code, values({}))",
            OWN_CODE.map(|chip| format!("\"{chip}\"")).join(", ")
        );
        for name in RUST_ALONE {
            println!("cargo::rerun-if-env-changed={name}");
        }
        if rust_alone() {
            return Ok(());
        }
        if self.gloo {
            self.find_gloo()?;
        }
        self.bridge()?;
        self.host_kernels()?;
        if let Some(cuda) = &self.cuda {
            cuda.kernels(self)?;
            cuda.tell();
            cuda.link()?;
        }
        if let Some(hip) = &self.hip {
            hip.kernels(self)?;
        }
        if self.gloo {
            println!("cargo::rustc-link-lib=gloo");
        }
        Ok(())
    }

    /// Headers for dependents: `DEP_SYMMETRA_INCLUDE`, and cxx's own export.
    fn headers(&self) {
        let include = self.root.join("include");
        println!("cargo::metadata=include={}", include.display());
        cxx_build::CFG.include_prefix = "symmetra";
        cxx_build::CFG.exported_header_dirs.push(&include);
    }

    /// Finds the system's Gloo with its TCP transport, by a trial compilation.
    fn find_gloo(&self) -> Result<()> {
        let probe = PathBuf::from(env::var("OUT_DIR")?).join("gloo.cc");
        fs::write(&probe, "#include <gloo/transport/tcp/device.h>\n")?;
        let mut build = cc::Build::new();
        self.cpp(&mut build);
        let found = build.file(probe).cargo_warnings(false).cargo_metadata(false).try_compile("symmetra_gloo_probe");
        found.map_err(|_| "feature `gloo` needs Gloo with its TCP transport: on Debian install libgloo-dev".into())
    }

    /// The files with a bridge.
    fn bridges(&self) -> Vec<&'static str> {
        let gloo = self.gloo.then_some("src/sys/gloo.rs");
        [
            "src/capi/mod.rs",
            "src/capi/copies.rs",
            "src/capi/experts.rs",
            "src/capi/explain.rs",
            "src/capi/fused.rs",
            "src/capi/heap.rs",
            "src/capi/log.rs",
            "src/capi/matmul.rs",
            "src/capi/mixed.rs",
            "src/capi/norm.rs",
            "src/capi/nvshmem.rs",
            "src/capi/observe.rs",
            "src/sys/device.rs",
            "src/sys/foreign.rs",
        ]
        .into_iter()
        .chain(gloo)
        .collect()
    }

    /// The cxx bridges and everything in `cpp/`.
    fn bridge(&self) -> Result<()> {
        let bridges = self.bridges();
        for bridge in &bridges {
            println!("cargo::rerun-if-changed={bridge}");
        }
        let mut build = cxx_build::bridges(bridges);
        self.cpp(&mut build);
        let mut folders = vec!["cpp/core", "cpp/device", "cpp/device/host"];
        if self.gloo {
            folders.push("cpp/gloo");
        }
        if let Some(cuda) = &self.cuda {
            build.define("SYMMETRA_CUDA", None);
            if self.multicast {
                build.define("SYMMETRA_MULTICAST", None);
            }
            build.include(cuda.home.join("include"));
            folders.push("cpp/device/cuda");
        }
        if let Some(hip) = &self.hip {
            build.define("SYMMETRA_HIP", None).define("__HIP_PLATFORM_AMD__", None);
            build.include(&hip.include);
            folders.push("cpp/device/hip");
        }
        for folder in folders {
            build.file(unit(&self.root, folder)?);
        }
        build.try_compile("symmetra_core")?;
        Ok(())
    }

    /// The kernels for the CPU: always optimised, and as far as a release asks for where it is one. -O1 compiles them in
    /// two thirds of the time of -O2. -Og would take two thirds of the time of -O1, and the suite a sixth more.
    fn host_kernels(&self) -> Result<()> {
        let mut build = cc::Build::new();
        build.cpp(true).opt_level(if release() { 3 } else { 1 }).files(sources(&self.root, "kernels/host")?);
        self.cpp(&mut build);
        build.try_compile("symmetra_kernels_host")?;
        Ok(())
    }

    /// What all C++ is compiled with. Outside a release C++ has no debug information, which takes a sixth of the time;
    /// `CXXFLAGS=-g` adds it.
    fn cpp(&self, build: &mut cc::Build) {
        if !release() {
            build.debug(false);
        }
        build.std("c++20").include(&self.root).include(self.root.join("include"));
        build.flag("-Wall").flag("-Wextra");
        // A product and a sum are rounded separately on every chip, also where an instruction computes both.
        build.flag("-ffp-contract=off");
    }
}

impl Cuda {
    /// Finds CUDA by CUDA_HOME, CUDA_PATH, or the nvcc in PATH.
    fn find() -> Result<Self> {
        for name in ["CUDA_HOME", "CUDA_PATH", "PATH", "SYMMETRA_CUDA_ARCHS"] {
            println!("cargo::rerun-if-env-changed={name}");
        }
        let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
        let path = env::var_os("PATH").unwrap_or_default();
        let on_path = env::split_paths(&path).filter_map(|folder| folder.parent().map(Path::to_owned));
        let home = named
            .chain(on_path)
            .find(|home| home.join("bin/nvcc").is_file())
            .ok_or("feature `cuda` needs nvcc: set CUDA_HOME or CUDA_PATH to a CUDA toolkit, or put nvcc in PATH")?;
        Ok(Self { home, archs: archs("SYMMETRA_CUDA_ARCHS", "80,90a,100a", "80 or 90a", valid_arch)? })
    }

    /// Compiles one translation unit by nvcc itself: cc would add flags that nvcc does not know, and -G, which turns
    /// optimisation off, whenever the profile has debug information.
    fn kernels(&self, plan: &Plan) -> Result<()> {
        let object = PathBuf::from(env::var("OUT_DIR")?).join("kernels_cuda.o");
        let mut nvcc = Command::new(self.home.join("bin/nvcc"));
        nvcc.args(["-O3", "-std=c++20", "-Xcompiler=-fPIC,-Wall,-Wextra", "-lineinfo", "-fmad=false", "--threads=0"]);
        if plan.multicast {
            nvcc.arg("-DSYMMETRA_MULTICAST");
        }
        if plan.timing {
            nvcc.arg("-DSYMMETRA_TIMING");
        }
        for arch in &self.archs {
            nvcc.arg(format!("-gencode=arch=compute_{arch},code=sm_{arch}"));
        }
        // PTX of the newest architecture that is not bound to one chip, for future chips. Kernels compiled for chips before 90 have
        // neither clusters nor early launches nor multicast, which the library uses on every chip from 90 on: a driver that made
        // code for such a chip out of older PTX would leave them out in silence.
        const LEAST: u32 = 90;
        let newest = self.archs.iter().filter_map(|arch| arch.trim_end_matches('a').parse::<u32>().ok()).max();
        if let (Some(newest @ LEAST..), true) = (newest, self.archs.len() > 1) {
            nvcc.arg(format!("-gencode=arch=compute_{newest},code=compute_{newest}"));
        }
        nvcc.arg("-I").arg(&plan.root).arg("-I").arg(plan.root.join("include"));
        nvcc.arg("-c").arg(plan.root.join("kernels/cuda/kernels.cu")).arg("-o").arg(&object);
        run(&mut nvcc)?;
        cc::Build::new().object(object).try_compile("symmetra_kernels_cuda")?;
        Ok(())
    }

    /// Sets the cfg for chips whose only architecture of this build is their own.
    fn tell(&self) {
        for chip in OWN_CODE {
            let archs: Vec<_> = self.archs.iter().filter(|arch| arch.trim_end_matches(['a', 'f']) == chip).collect();
            if !archs.is_empty() && archs.iter().all(|arch| arch.ends_with('a')) {
                println!("cargo::rustc-cfg=symmetra_own_code=\"{chip}\"");
            }
        }
    }

    /// Links the static runtime, so that the binary starts without a driver.
    fn link(&self) -> Result<()> {
        let folder = ["lib64", "lib"]
            .map(|name| self.home.join(name))
            .into_iter()
            .find(|folder| folder.join("libcudart_static.a").is_file())
            .ok_or_else(|| format!("no libcudart_static.a in lib64 or lib of {}", self.home.display()))?;
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static=cudart_static");
        for library in ["dl", "rt", "pthread"] {
            println!("cargo::rustc-link-lib={library}");
        }
        Ok(())
    }
}

impl Hip {
    /// Finds ROCm by HIP_PATH, ROCM_PATH, or the hipcc in PATH, and clang by HIP_CLANG_PATH or in that ROCm.
    fn find() -> Result<Self> {
        for name in ["HIP_PATH", "ROCM_PATH", "HIP_CLANG_PATH", "PATH", "SYMMETRA_HIP_ARCHS"] {
            println!("cargo::rerun-if-env-changed={name}");
        }
        let named = ["HIP_PATH", "ROCM_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
        let path = env::var_os("PATH").unwrap_or_default();
        let on_path = env::split_paths(&path).filter(|folder| folder.join("hipcc").is_file());
        let on_path = on_path.filter_map(|folder| folder.parent().map(Path::to_owned));
        let home = named
            .chain(on_path)
            .find(|home| home.join("include/hip/hip_runtime_api.h").is_file())
            .ok_or("feature `hip` needs ROCm's headers: set ROCM_PATH or HIP_PATH, or put hipcc in PATH")?;
        let clang = env::var_os("HIP_CLANG_PATH").map(PathBuf::from).into_iter();
        let clang = clang
            .chain([home.join("llvm/bin")])
            .map(|folder| folder.join("clang++"))
            .find(|clang| clang.is_file())
            .ok_or("feature `hip` needs ROCm's clang: set HIP_CLANG_PATH to the folder that holds clang++")?;
        let archs = archs("SYMMETRA_HIP_ARCHS", "gfx90a,gfx942", "gfx90a or gfx942", |arch| arch.starts_with("gfx9"))?;
        Ok(Self { include: home.join("include"), clang, archs })
    }

    /// Compiles one translation unit. The runtime functions that clang calls get names of this library, so that nothing
    /// links the runtime; `cpp/device/hip/module.cc` defines them.
    fn kernels(&self, plan: &Plan) -> Result<()> {
        let out = PathBuf::from(env::var("OUT_DIR")?);
        let (compiled, object) = (out.join("kernels_hip_runtime.o"), out.join("kernels_hip.o"));
        let mut clang = Command::new(&self.clang);
        // The kernels use neither ROCm's wrappers nor its device libraries. A product and a sum are rounded separately,
        // as on the host.
        clang.args(["-x", "hip", "-nogpuinc", "-nogpulib", "-O3", "-std=c++20", "-ffp-contract=off"]);
        // Loops over ranks are unrolled if the number of ranks is known.
        clang.args(["-fPIC", "-Wall", "-Wextra", "-Wno-pass-failed"]);
        clang.args(self.archs.iter().map(|arch| format!("--offload-arch={arch}")));
        if plan.timing {
            clang.arg("-DSYMMETRA_TIMING");
        }
        clang.arg("-I").arg(&plan.root).arg("-I").arg(plan.root.join("include"));
        clang.arg("-c").arg(plan.root.join("kernels/hip/kernels.hip")).arg("-o").arg(&compiled);
        run(&mut clang)?;
        let mut objcopy = Command::new("objcopy");
        for name in [
            "__hipRegisterFatBinary",
            "__hipRegisterFunction",
            "__hipUnregisterFatBinary",
            "__hipPopCallConfiguration",
            "hipLaunchKernel",
        ] {
            objcopy.arg(format!("--redefine-sym={name}=symmetra_{name}"));
        }
        run(objcopy.arg(&compiled).arg(&object))?;
        cc::Build::new().object(object).try_compile("symmetra_kernels_hip")?;
        println!("cargo::rustc-link-lib=dl");
        Ok(())
    }
}

/// Whether nothing will be linked, so that no C++ is compiled and no toolkit is needed.
fn rust_alone() -> bool {
    RUST_ALONE.iter().any(|name| env::var_os(name).is_some())
}

/// Whether the profile asks for speed.
fn release() -> bool {
    env::var("OPT_LEVEL").is_ok_and(|level| level == "3")
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("{program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program} failed with {status}").into()) }
}

/// The architectures of a variable.
fn archs(variable: &str, default: &str, like: &str, valid: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let named = env::var(variable).unwrap_or_else(|_| default.to_owned());
    let archs: Vec<String> = named.split([',', ';', ' ']).filter(|arch| !arch.is_empty()).map(str::to_owned).collect();
    match archs.iter().find(|arch| !valid(arch)) {
        Some(bad) => Err(format!("{variable}: `{bad}` is not an architecture like {like}").into()),
        None if archs.is_empty() => Err(format!("{variable} names no architecture").into()),
        None => Ok(archs),
    }
}

fn valid_arch(arch: &str) -> bool {
    let digits = arch.trim_end_matches(['a', 'f']);
    digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// One file that includes all files of a folder: most of the time of each is that of the headers that they share.
fn unit(root: &Path, folder: &str) -> Result<PathBuf> {
    let includes = |path: &PathBuf| Some(format!("#include \"{folder}/{}\"\n", path.file_name()?.to_str()?));
    let text: Option<String> = sources(root, folder)?.iter().map(includes).collect();
    let unit = PathBuf::from(env::var("OUT_DIR")?).join(format!("{}.cc", folder.replace('/', "_")));
    fs::write(&unit, text.ok_or("the name of a source is not UTF-8")?)?;
    Ok(unit)
}

/// The `.cc` files directly in a folder, in order.
fn sources(root: &Path, folder: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "cc") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
