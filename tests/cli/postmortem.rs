//! `postmortem`: the histories of ranks that failed.

use std::path::Path;
use std::time::Duration;

use symmetra::bootstrap::Threads;
use symmetra::{Communicator, Config, Device, Error, Stream};

use super::{Run, symmetra_with};

/// Two ranks make two equal calls, and then each of three ranks makes the calls of `last`. Each writes its history.
fn fail(folder: &Path, last: impl Fn(&Communicator, &Stream) -> symmetra::Result<()> + Sync) {
    std::thread::scope(|scope| {
        for bootstrap in Threads::new(3).unwrap() {
            let last = &last;
            scope.spawn(move || {
                let mut config = Config::default();
                config.deadlines.steady = Duration::from_secs(2);
                config.heap_bytes = 1 << 20;
                config.silence = true;
                let device = Device::host().unwrap();
                let stream = Stream::new(&device).unwrap();
                let communicator = Communicator::open(bootstrap, &device, config).unwrap();
                let values = communicator.symmetric::<f32>(100).unwrap();
                for _ in 0..2 {
                    communicator.all_reduce_in_place(&values, &stream).unwrap();
                }
                communicator.synchronize(&stream).unwrap();
                communicator.group().barrier().unwrap();
                let error = last(&communicator, &stream).and_then(|()| wait(&communicator, &stream)).unwrap_err();
                // A late rank itself is aborted.
                let expected = matches!(error, Error::Mismatch { .. } | Error::Timeout { .. } | Error::Aborted { .. });
                assert!(expected, "{error}");
                let path = communicator.dump(folder).unwrap();
                assert!(path.starts_with(folder));
            });
        }
    });
}

/// Waits for the failure of the group.
pub(super) fn wait(communicator: &Communicator, stream: &Stream) -> symmetra::Result<()> {
    communicator.synchronize(stream)?;
    for _ in 0..2000 {
        std::thread::sleep(Duration::from_millis(10));
        communicator.check()?;
    }
    Ok(())
}

fn postmortem(folder: &Path) -> (Run, serde_json::Value) {
    let folder = folder.to_str().unwrap();
    let json: Run = symmetra_with(&["postmortem", folder, "--json"]).ok();
    (symmetra_with(&["postmortem", folder]).ok(), json.objects().remove(0))
}

#[test]
fn the_rank_whose_call_differs_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let equal_calls_are_made = std::sync::Barrier::new(3);
    fail(folder.path(), |communicator, stream| {
        let values = communicator.symmetric::<f32>(100)?;
        if communicator.rank() != 1 {
            let made = communicator.all_reduce_in_place(&values, stream);
            equal_calls_are_made.wait();
            return made;
        }
        // The group may fail as soon as two calls differ. The records of two ranks alone would not show the wrong call.
        equal_calls_are_made.wait();
        communicator.all_reduce_in_place(values.slice(0..50)?, stream)
    });
    let (run, found) = postmortem(folder.path());
    assert!(run.stdout.contains("ranks differ in call 2: rank 1 made all-reduce (sum) of 200 bytes"), "{}", run.stdout);
    assert_eq!((&found["culprits"], &found["difference"]["call"]), (&serde_json::json!([1]), &2.into()));
    let picture = folder.path().join("timeline.svg");
    symmetra_with(&["postmortem", folder.path().to_str().unwrap(), "--svg", picture.to_str().unwrap()]).ok();
    assert!(std::fs::read_to_string(&picture).unwrap().contains("ranks differ in call 2"));
    let folder = folder.path().to_str().unwrap();
    let refused: Run = symmetra_with(&["postmortem", folder, "--svg", "/absent/timeline.svg"]);
    assert!(refused.code != 0 && refused.stderr.contains("/absent/timeline.svg"), "{}", refused.stderr);
}

#[test]
fn the_rank_that_has_not_made_a_call_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fail(folder.path(), |communicator, stream| match communicator.rank() {
        2 => Ok(()),
        _ => {
            let values = symmetra::DeviceBuffer::from_slice(&[1f32; 100], stream)?;
            communicator.all_reduce_in_place(&values, stream)?;
            communicator.synchronize(stream)
        }
    });
    let (run, found) = postmortem(folder.path());
    let sentence = "rank 2 has not made all-reduce 2 (all-reduce (sum) of 400 bytes";
    assert!(run.stdout.contains(sentence) && run.stdout.contains("which 2 ranks have made"), "{}", run.stdout);
    assert_eq!((&found["culprits"], &found["unmade"]["ranks"]), (&serde_json::json!([2]), &serde_json::json!([2])));
}
