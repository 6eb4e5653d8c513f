//! Commands on memory of NVSHMEM, over a library with its functions and no devices. Without the feature, the commands'
//! errors.

use super::{symmetra, symmetra_with};

#[test]
fn ranks_get_the_variables_of_nvshmem() {
    let script = "echo $NVSHMEM_DISABLE_NVLS $NVSHMEM_REMOTE_TRANSPORT $NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME $NVSHMEM_CUMEM_GRANULARITY";
    let run = symmetra_with(&["launch", "-n", "1", "--nvshmem", "--", "sh", "-c", script]).ok();
    assert_eq!(run.stdout, "[0] 1 none lo 2097152\n");
    let run = symmetra_with(&["launch", "-n", "1", "--", "sh", "-c", script]).ok();
    assert_eq!(run.stdout, "[0] \n");
    // Variables that are set are kept.
    let mut command = super::command(["launch", "-n", "1", "--nvshmem", "--", "sh", "-c", script]);
    let run = super::Run::from(command.env("NVSHMEM_REMOTE_TRANSPORT", "ibrc").output().unwrap()).ok();
    assert_eq!(run.stdout, "[0] 1 ibrc lo 2097152\n");
}

#[test]
fn memory_has_one_flag() {
    symmetra("all-reduce --memory nvshmem --plain").refused(2, &["--plain", "--memory"]);
    symmetra("all-reduce --memory elsewhere").refused(2, &["elsewhere", "nvshmem"]);
    let direct = "all-to-all-v --memory nvshmem --transport direct";
    symmetra(direct).refused(2, &["--memory", "direct all-to-all-v"]);
}

#[cfg(not(feature = "nvshmem"))]
#[test]
fn a_build_without_nvshmem_says_so() {
    let run = symmetra("all-reduce --device host --ranks 2 --memory nvshmem --min-bytes 64 --max-bytes 64");
    assert_ne!(run.code, 0);
    assert!(run.stderr.contains("this build has no NVSHMEM (cargo build --features nvshmem)"), "{}", run.stderr);
    assert!(symmetra("doctor").stdout.contains("-    NVSHMEM: this build has none"));
}

#[cfg(feature = "nvshmem")]
mod with_library {
    use crate::fake_nvshmem::Fake;

    #[test]
    fn sums_in_its_memory_are_right() {
        let fake = Fake::new();
        for form in [
            "all-reduce --ranks 3 --dtype bf16",
            "all-reduce --ranks 2 --dtype i32 --graph --in-place",
            "all-reduce --ranks 2 --bound --algorithm two-shot-zero-copy",
            "all-gather --ranks 2 --transport direct",
        ] {
            let sizes = "--memory nvshmem --min-bytes 1KiB --max-bytes 64KiB --step-factor 8 --iterations 2 --json";
            let rows = fake.run(&format!("{form} --device host {sizes}")).ok().objects();
            assert_eq!(rows.len(), 3, "{form}");
            assert!(rows.iter().all(|row| row["wrong"] == 0), "{form}: {rows:?}");
        }
        let calls = std::fs::read_to_string(fake.0.path().join("calls")).unwrap();
        let count = |name: &str| calls.lines().filter(|call| call.ends_with(name)).count();
        // Two buffers a size, one in place.
        assert_eq!(count("nvshmem_malloc"), 3 * (3 * 2 + 2 + 2 * 2 + 2 * 2));
        assert_eq!(count("nvshmem_malloc"), count("nvshmem_free"));
        assert_eq!(count("finalize"), 3 + 2 + 2 + 2);
    }

    #[test]
    fn ranks_as_threads_are_refused() {
        let run = Fake::new().run("all-reduce --device host --ranks 2 --ranks-as threads --memory nvshmem");
        assert_eq!(run.code, 2, "{}", run.stderr);
        assert!(run.stderr.contains("--memory nvshmem needs ranks that are processes"), "{}", run.stderr);
    }

    #[test]
    fn the_doctor_names_the_library_and_its_plugin() {
        let fake = Fake::new();
        let folder = fake.0.path();
        let expected = format!("ok   NVSHMEM: NVSHMEM 3.4.5, {}", fake.path().display());
        let run = fake.run("doctor");
        let missing = format!("{} has no nvshmem_bootstrap_uid.so.3", folder.display());
        for part in [&expected, "-    NVSHMEM bootstrap plugin: ", &missing] {
            assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
        }
        std::fs::write(folder.join("nvshmem_bootstrap_uid.so.3.0.0"), "").unwrap();
        let plugin = folder.join("nvshmem_bootstrap_uid.so.3");
        std::os::unix::fs::symlink("nvshmem_bootstrap_uid.so.3.0.0", &plugin).unwrap();
        let run = fake.run("doctor");
        let expected = format!("ok   NVSHMEM bootstrap plugin: version 3.0.0, {}", plugin.display());
        assert!(run.stdout.contains(&expected), "{}", run.stdout);
    }
}
