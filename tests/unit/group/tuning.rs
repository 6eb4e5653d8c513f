//! Tests of `src/group/tuning.rs`, whose module they are.

use super::*;

fn tuning(limits: &[Option<u64>]) -> Tuning {
    let rows = limits.iter().map(|limit| TunedRow { up_to_bytes: *limit, algorithm: "two-shot-ll".to_owned() });
    Tuning {
        kind: "host".to_owned(),
        tables: vec![TunedTable { world_size: 4, floating: true, direct: false, exact: false, rows: rows.collect() }],
        ..Tuning::default()
    }
}

#[test]
fn files_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tuning.json");
    let good = tuning(&[Some(1024), None]);
    good.save(&path).unwrap();
    assert_eq!(Tuning::load(&path).unwrap(), good);
    assert_eq!(good.rows(4, true, false, false).unwrap().len(), 2);
    assert_eq!(good.rows(4, true, false, true), None);
    assert_eq!(good.rows(4, true, true, false), None);
    assert_eq!(good.rows(3, true, false, false), None);
    assert_ne!(good.digest(), tuning(&[Some(1025), None]).digest());
}

#[test]
fn files_of_version_1_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tuning.json");
    let old = Tuning { version: 1, ..tuning(&[None]) };
    old.save(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(!["codecs", "norms", "experts", "grids"].iter().any(|part| text.contains(part)), "{text}");
    assert_eq!(Tuning::load(&path).unwrap(), old);
    let codec = TunedCodec { world_size: 2, codec: "int8".to_owned(), from_bytes: Some(7) };
    let rows = |limit, name: &str| vec![TunedRow { up_to_bytes: limit, algorithm: name.to_owned() }];
    let norm = |limit| TunedNorm { world_size: 2, hidden: 64, rows: rows(limit, "apart") };
    let new = Tuning { codecs: vec![codec], norms: vec![norm(None)], ..tuning(&[None]) };
    new.save(&path).unwrap();
    assert_eq!(Tuning::load(&path).unwrap(), new);
    assert_eq!(new.codec(2, "int8").unwrap().from_bytes, Some(7));
    assert!(new.codec(3, "int8").is_none() && new.codec(2, "fp8").is_none() && new.norm_rows(3).is_none());
    let experts =
        |limit| TunedExperts { world_size: 2, experts: 8, top_k: 2, hidden: 64, rows: rows(limit, "packets") };
    let newer = Tuning { experts: vec![experts(None)], ..new.clone() };
    newer.save(&path).unwrap();
    assert_eq!(Tuning::load(&path).unwrap(), newer);
    assert!(newer.expert_rows(2).is_some() && newer.expert_rows(3).is_none());
    assert_ne!(newer.digest(), new.digest());
    assert!(Tuning { norms: vec![norm(Some(5))], ..new.clone() }.save(&path).is_err());
    assert!(Tuning { experts: vec![experts(Some(5))], ..new.clone() }.save(&path).is_err());
    let grid = |limit| TunedGrid {
        local_tensor: 2,
        local_data: 1,
        across_tensor: 1,
        across_data: 3,
        operation: "all-gather".to_owned(),
        direct: true,
        measured_bytes: Some([8 << 10, 1 << 20]),
        rows: rows(limit, "two-shot"),
    };
    let newest = Tuning { grids: vec![grid(None)], ..newer.clone() };
    newest.save(&path).unwrap();
    assert_eq!(Tuning::load(&path).unwrap(), newest);
    let found = |sizes, operation, direct| newest.grid(sizes, operation, direct).is_some();
    assert!(found([2, 1, 1, 3], "all-gather", true));
    assert!(!found([2, 1, 3, 1], "all-gather", true) && !found([2, 1, 1, 3], "all-reduce", true));
    assert!(!found([2, 1, 1, 3], "all-gather", false));
    assert_ne!(newest.digest(), newer.digest());
    // Files without the range that was measured.
    let unsaid = Tuning { grids: vec![TunedGrid { measured_bytes: None, ..grid(None) }], ..newer.clone() };
    unsaid.save(&path).unwrap();
    assert!(!fs::read_to_string(&path).unwrap().contains("measured_bytes"));
    assert_eq!(Tuning::load(&path).unwrap(), unsaid);
    assert!(Tuning { grids: vec![grid(Some(5))], ..new }.save(&path).is_err());
}

#[test]
fn a_file_is_replaced_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tuning.json");
    let old = tuning(&[None]);
    old.save(&path).unwrap();
    assert!(tuning(&[Some(5), Some(4), None]).save(&path).is_err());
    assert_eq!(Tuning::load(&path).unwrap(), old);
    tuning(&[Some(5), None]).save(&path).unwrap();
    assert_eq!(Tuning::load(&path).unwrap(), tuning(&[Some(5), None]));
    let folder = directory.path().join("folder");
    fs::create_dir(&folder).unwrap();
    assert!(matches!(old.save(&folder), Err(Error::System { .. })));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    assert!(matches!(old.save(directory.path().join("none/tuning.json")), Err(Error::System { errno: 2, .. })));
}

#[test]
fn what_a_link_leads_to_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let [path, link] = ["tuning.json", "link.json"].map(|name| directory.path().join(name));
    let good = tuning(&[None]);
    good.save(&path).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    tuning(&[Some(5), None]).save(&link).unwrap();
    assert!(link.is_symlink());
    assert_eq!(Tuning::load(&path).unwrap(), tuning(&[Some(5), None]));
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    assert!(matches!(good.save(&link), Err(Error::InvalidArgument { .. })));
    assert!(link.is_symlink());
}

#[test]
fn a_link_of_another_user_beside_the_file_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let [path, victim] = ["tuning.json", "victim"].map(|name| directory.path().join(name));
    fs::write(&victim, "precious").unwrap();
    // The names that could be foreseen: of this process, and of one that has just ended.
    for number in [std::process::id(), std::process::id() - 1] {
        std::os::unix::fs::symlink(&victim, directory.path().join(format!("tuning.json.{number}"))).unwrap();
    }
    tuning(&[None]).save(&path).unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!path.is_symlink());
    assert_eq!(Tuning::load(&path).unwrap(), tuning(&[None]));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4, "nothing else is left");
}

#[test]
fn what_is_no_tuning_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tuning.json");
    let words = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Tuning::load(&path).unwrap_err().to_string()
    };
    assert!(words("[]").contains("malformed"));
    for version in [0, Tuning::VERSION + 1] {
        let newer = format!(r#"{{"version": {version}, "more": 1}}"#);
        assert!(words(&newer).contains(&format!("of version {version}, but it must be at least 1 and at most 2")));
    }
    assert!(words(r#"{"version": 1, "more": 1}"#).contains("unknown field `more`"));
    for limits in [&[Some(1024)][..], &[None, None], &[Some(5), Some(4), None], &[]] {
        assert!(tuning(limits).save(&path).is_err(), "{limits:?}");
    }
    assert!(matches!(Tuning::load(directory.path().join("none")), Err(Error::System { errno: 2, .. })));
}

#[test]
fn words_of_a_file_are_cut_and_escaped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tuning.json");
    let key = format!("\\u001b[31m{}", "k".repeat(10_000));
    std::fs::write(&path, format!("{{\"version\": {}, \"{key}\": 1}}", Tuning::VERSION)).unwrap();
    let words = Tuning::load(&path).unwrap_err().to_string();
    assert!(words.contains("unknown field") && words.contains("kkk..."), "{words}");
    assert!(words.len() < 500 && !words.contains('\u{1b}'), "{words}");
}
