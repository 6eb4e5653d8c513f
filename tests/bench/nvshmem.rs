//! Races in memory of NVSHMEM.

#[cfg(not(feature = "nvshmem"))]
#[test]
fn a_build_without_nvshmem_says_so() {
    let run = super::bench("all-reduce --device host --ranks 2 --with nvshmem");
    run.refused(2, &["--with nvshmem", "no NVSHMEM"]);
}

#[cfg(feature = "nvshmem")]
#[test]
fn its_memory_races() {
    let fake = crate::fake_nvshmem::Fake::new();
    let sizes = "--min-bytes 1KiB --max-bytes 64KiB --step-factor 64 --operations 2 --launches 1";
    for form in ["all-reduce --graph --eager", "all-gather --eager", "reduce-scatter --graph"] {
        let words = format!("{form} --device host --ranks 3 --with plain,nvshmem {sizes} --json");
        let report = fake.run(&words).ok().objects().remove(0);
        assert_eq!(report["sides"], serde_json::json!(["symmetra", "plain", "nvshmem"]), "{form}");
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * form.matches("--").count(), "{form}: {report}");
        let right = serde_json::json!({"symmetra": 0, "plain": 0, "nvshmem": 0});
        for row in rows {
            assert_eq!(row["wrong"], right, "{form}: {row}");
            assert!(row["time_us"]["nvshmem"].as_f64().is_some_and(|time| time > 0.0), "{form}: {row}");
        }
    }
    let calls = std::fs::read_to_string(fake.0.path().join("calls")).unwrap();
    let count = |name: &str| calls.lines().filter(|call| call.ends_with(name)).count();
    // Input and output of two sizes, on every rank of every race.
    assert_eq!([count("nvshmem_malloc"), count("nvshmem_free"), count("finalize")], [3 * 3 * 4, 3 * 3 * 4, 3 * 3]);
}
