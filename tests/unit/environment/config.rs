//! Tests of `src/environment/config.rs`, whose module they are.

use super::*;

struct Set(Vec<(&'static str, &'static str)>);

impl Lookup for Set {
    fn get(&self, name: &'static str) -> Result<Option<String>> {
        Ok(self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }
}

fn setting<'a>(resolved: &'a Resolved, name: &str) -> (&'a str, SettingSource) {
    let setting = resolved.settings.iter().find(|setting| setting.name == name).unwrap();
    (&setting.value, setting.source)
}

#[test]
fn pitfall_36_the_program_beats_the_environment() {
    let variables = Set(vec![("RANK", "3"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("SYMMETRA_INTERFACE", "eth1")]);
    let config = EnvConfig { rank: Some(5), tensor_parallel_size: 4, ..EnvConfig::default() };
    let resolved = config.resolve_with(&variables, None).unwrap();
    assert_eq!(resolved.rank, 5);
    assert_eq!(setting(&resolved, "rank"), ("5", SettingSource::Program));
    assert_eq!(setting(&resolved, "world_size"), ("8", SettingSource::Variable("WORLD_SIZE")));
    assert_eq!(setting(&resolved, "pipeline_parallel_size"), ("1", SettingSource::Default));
    assert_eq!(resolved.interface, Some(("eth1".to_owned(), SettingSource::Variable("SYMMETRA_INTERFACE"))));
    let (device, settings) = choose_device(None, resolved.local_rank.unwrap(), 8);
    assert!(matches!(device, Chosen::Cuda(1)));
    assert_eq!((settings[1].value.as_str(), settings[1].source), ("cuda 1", SettingSource::Variable("LOCAL_RANK")));
}

#[test]
fn settings_are_known_before_anything_opens() {
    let variables = Set(vec![("WORLD_SIZE", "4"), ("VLLM_NCCL_SO_PATH", "a"), ("SYMMETRA_NCCL_LIBRARY", "b")]);
    let mut config = EnvConfig { tensor_parallel_size: 2, ..EnvConfig::default() };
    config.communicator.heap_bytes = 4096;
    let settings = config.settings_with(&variables, (1, 8)).unwrap();
    let of = |name: &str| {
        let setting = settings.iter().find(|setting| setting.name == name).unwrap();
        (setting.value.as_str(), setting.source)
    };
    assert_eq!(of("rank"), ("1", SettingSource::Default));
    assert_eq!(of("world_size"), ("4", SettingSource::Variable("WORLD_SIZE")));
    assert_eq!(of("tensor_parallel_size"), ("2", SettingSource::Program));
    assert_eq!(of("local_rank"), ("1", SettingSource::Derived));
    assert_eq!(of("backend"), ("auto", SettingSource::Default));
    assert_eq!(of("quantised"), ("off", SettingSource::Default));
    assert_eq!(of("nccl_library"), ("b", SettingSource::Variable("SYMMETRA_NCCL_LIBRARY")));
    assert_eq!(of("heap_bytes"), ("4096", SettingSource::Program));
    assert_eq!(of("registrations"), ("1024", SettingSource::Default));
    let vllm = Set(vec![("VLLM_NCCL_SO_PATH", "a")]);
    let settings = EnvConfig::default().settings_with(&vllm, (0, 1)).unwrap();
    assert!(settings.iter().any(|setting| setting.source == SettingSource::Variable("VLLM_NCCL_SO_PATH")));
    let outside = EnvConfig::default().settings_with(&Set(vec![("RANK", "9")]), (0, 2));
    assert!(outside.unwrap_err().to_string().contains("rank is 9"));
}

#[test]
fn replicas_started_apart_are_numbered_together() {
    let variables = || Set(vec![("RANK", "1"), ("WORLD_SIZE", "4")]);
    let config = || EnvConfig {
        tensor_parallel_size: 2,
        pipeline_parallel_size: 2,
        data_parallel_size: 3,
        data_parallel_rank: Some(2),
        ..EnvConfig::default()
    };
    let resolved = config().resolve_with(&variables(), None).unwrap();
    assert_eq!((resolved.rank, resolved.layout.world_size()), (9, 12));
    let words = |config: EnvConfig| match config.resolve_with(&variables(), None) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("accepted"),
    };
    assert!(words(EnvConfig { data_parallel_rank: Some(3), ..config() }).contains("data_parallel_size is 3"));
    assert!(words(EnvConfig { tensor_parallel_size: 4, ..config() }).contains("2 pipeline x 4 tensor has 8 ranks"));
    assert!(words(EnvConfig { rank: Some(4), ..config() }).contains("rank is 4, but the world size is 4"));
    assert!(words(EnvConfig { rank: Some(usize::MAX), ..config() }).contains("the world size is 4"));
}

#[test]
fn what_is_missing_is_named() {
    let words = |variables| match EnvConfig::default().resolve_with(&Set(variables), None) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("accepted"),
    };
    assert!(words(vec![]).contains("RANK is unset"));
    assert!(words(vec![("RANK", "0")]).contains("WORLD_SIZE is unset"));
    assert!(words(vec![("RANK", "x"), ("WORLD_SIZE", "2")]).contains("RANK is `x`"));
    assert!(words(vec![("RANK", "2"), ("WORLD_SIZE", "2")]).contains("rank is 2"));
}
