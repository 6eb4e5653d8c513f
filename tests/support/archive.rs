//! The library as C++ programs link it.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

/// The archive that cargo built next to this test, with the features of this test. Builds with other features may be in
/// the same folder: cargo notes the features of each.
pub fn archive() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let all = [
        ("cuda", cfg!(feature = "cuda")),
        ("cudarc", cfg!(feature = "cudarc")),
        ("gloo", cfg!(feature = "gloo")),
        ("hip", cfg!(feature = "hip")),
        ("hip-sys", cfg!(feature = "hip-sys")),
        ("metrics", cfg!(feature = "metrics")),
        ("multicast", cfg!(feature = "multicast")),
        ("nccl", cfg!(feature = "nccl")),
        ("nvshmem", cfg!(feature = "nvshmem")),
        ("nvtx", cfg!(feature = "nvtx")),
        ("timing", cfg!(feature = "timing")),
    ];
    let features: Vec<&str> = all.into_iter().filter_map(|(name, on)| on.then_some(name)).collect();
    let fits = |path: &PathBuf| {
        let build = path.file_stem()?.to_str()?.strip_prefix("lib")?;
        let note = std::fs::read(deps.join("../.fingerprint").join(build).join("lib-symmetra.json")).ok()?;
        let note: serde_json::Value = serde_json::from_slice(&note).unwrap();
        let built: Vec<String> = serde_json::from_str(note["features"].as_str()?).unwrap();
        Some(built == features)
    };
    let archives = std::fs::read_dir(&deps).unwrap().map(|entry| entry.unwrap().path());
    archives
        .filter(|path| path.extension().is_some_and(|ending| ending == "a") && fits(path) == Some(true))
        .max_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap())
        .expect("no libsymmetra.a beside the test")
}
