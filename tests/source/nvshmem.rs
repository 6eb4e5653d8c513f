//! The declarations of `src/nvshmem/library.rs` match NVSHMEM's headers, and the library has every function. Runs where
//! libclang and NVSHMEM's package exist: `SYMMETRA_TEST_NVSHMEM` names the folder with its `include` and `lib`,
//! `SYMMETRA_TEST_CUDA` a CUDA toolkit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bindgen::Formatter;

/// Arguments and result, without blanks.
type Signatures = BTreeMap<String, String>;

/// The functions of the two lists of `symbols!`, with the names that the headers have for the structures.
fn declared() -> Signatures {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/nvshmem/library.rs")).unwrap();
    let list = text.split("\nsymbols! {\n").nth(1).unwrap().split("\n}\n").next().unwrap();
    let functions = list.lines().filter_map(|line| line.trim().strip_suffix(';')?.split_once(": fn"));
    let signature = |signature: &str| {
        let structures = [("ShmemUniqueId", "nvshmemx_uniqueid_t"), ("InitAttr", "nvshmemx_init_attr_t")];
        structures.iter().fold(signature.replace(' ', ""), |signature, (ours, theirs)| signature.replace(ours, theirs))
    };
    functions.map(|(name, types)| (name.to_owned(), signature(types))).collect()
}

/// The functions `names` in the headers below these folders, and bindgen's output for their structures.
fn in_headers(include: &Path, cuda: &Path, names: &Signatures) -> (Signatures, String) {
    let builder = bindgen::Builder::default()
        .header_contents("all.h", "#include <nvshmem_host.h>\n#include <host/nvshmemx_api.h>\n")
        .clang_args(["-x", "c++", "-std=c++17"])
        .clang_args([include, cuda].map(|folder| format!("-I{}", folder.display())))
        .generate_comments(false)
        .formatter(Formatter::None);
    let builder = names.keys().fold(builder, |builder, name| builder.allowlist_function(name));
    let text: String = builder.generate().expect("bindgen").to_string().split_whitespace().collect();
    let found = text.split("pubfn").skip(1).filter_map(|function| {
        let (name, rest) = function.split_once('(')?;
        let (arguments, rest) = rest.split_once(')')?;
        let types = arguments.split(',').filter_map(|argument| Some(argument.split_once(':')?.1)).collect::<Vec<_>>();
        let signature = format!("({}){}", types.join(","), rest.split_once(';')?.0);
        let name = name.to_owned();
        Some((name, signature.replace("::std::os::raw::", "")))
    });
    (found.filter(|(name, _)| names.contains_key(name)).collect(), text)
}

#[test]
fn what_is_declared_of_nvshmem_is_in_its_headers() {
    let declared = declared();
    assert!(declared.len() >= 13, "{declared:?}");
    let Some(package) = std::env::var_os("SYMMETRA_TEST_NVSHMEM").map(PathBuf::from) else {
        eprintln!("skipped: SYMMETRA_TEST_NVSHMEM names no package");
        return;
    };
    let cuda = PathBuf::from(std::env::var_os("SYMMETRA_TEST_CUDA").expect("SYMMETRA_TEST_CUDA")).join("include");
    // bindgen panics without it.
    if let Err(missing) = clang_sys::load() {
        eprintln!("skipped: {missing}");
        return;
    }
    let (found, text) = in_headers(&package.join("include"), &cuda, &declared);
    assert_eq!(found, declared);
    for (name, bytes) in [("nvshmemx_uniqueid", 128), ("nvshmemx_init_attr", 144)] {
        let sizes: Vec<_> =
            text.match_indices(&format!("size_of::<{name}")).map(|(at, _)| &text[at..at + 80]).collect();
        assert!(sizes.iter().any(|size| size.contains(&format!(">()-{bytes}usize"))), "{name}: {sizes:?}");
    }
    let library = std::fs::read(package.join("lib/libnvshmem_host.so.3")).unwrap();
    for name in declared.keys() {
        let exported = [&b"\0"[..], name.as_bytes(), b"\0"].concat();
        assert!(library.windows(exported.len()).any(|bytes| bytes == exported), "the library lacks {name}");
    }
}
