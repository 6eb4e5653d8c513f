//! The example as processes.

use std::env;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::on_gpus;

/// The example `llama`, built as this test was. On a machine without cargo the program already lies next to the test's folder.
fn program() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let profile = env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
        if !Path::new(env!("CARGO")).exists() {
            return profile.join("examples/llama");
        }
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "--offline", "--locked", "--example=llama", "--target-dir"]);
        command.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            command.arg("--release");
        }
        for (feature, on) in [("cuda", cfg!(feature = "cuda")), ("nccl", cfg!(feature = "nccl"))] {
            command.args(on.then(|| format!("--features={feature}")));
        }
        assert!(command.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        profile.join("examples/llama")
    })
}

/// A process that is killed when the test ends.
pub(crate) struct Rank(pub(crate) Child);

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port of this machine that no program uses.
pub(crate) fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts rank `rank` of two, with the checkpoint in `folder`.
pub(crate) fn start(rank: usize, port: u16, folder: &Path, prompt: &[u32], steps: usize) -> Rank {
    let prompt: Vec<String> = prompt.iter().map(u32::to_string).collect();
    let mut command = Command::new(program());
    command.arg("--model").arg(folder).args(["--json", "--prompt", &prompt.join(","), "--steps", &steps.to_string()]);
    command.args(["--device", if on_gpus() { "cuda" } else { "cpu" }]);
    command.envs([("MASTER_ADDR", "127.0.0.1"), ("WORLD_SIZE", "2"), ("RAYON_NUM_THREADS", "1")]);
    command.env("MASTER_PORT", port.to_string()).env("RANK", rank.to_string());
    Rank(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
}

/// The tokens that two processes print.
pub(crate) fn tokens(folder: &Path, prompt: &[u32], steps: usize) -> Vec<u32> {
    let port = port();
    let other = start(1, port, folder, prompt, steps);
    let mut first = start(0, port, folder, prompt, steps);
    let text = std::io::read_to_string(first.0.stdout.take().unwrap()).unwrap();
    for mut rank in [first, other] {
        assert!(rank.0.wait().unwrap().success());
    }
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["ranks"], 2);
    assert!(found["tokens_per_s"].as_f64().unwrap() > 0.0 && found["collectives_share"].as_f64().unwrap() > 0.0);
    serde_json::from_value(found["tokens"].clone()).unwrap()
}
