//! Lost ranks, late ranks, calls that differ, and values outside their limits.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use candle_core::error::Context;
use candle_core::{DType, Device, Error, Result, Tensor};
use symmetra::bootstrap::{Bootstrap, Tcp, TcpConfig};
use symmetra::{Config, Deadlines};
use symmetra_candle::{Group, failure};

use crate::checkpoint::{Checkpoint, weights};
use crate::model::{Llama, ModelNorm, Room, decode};
use crate::{device, processes, ranks, settle};

/// Steps of which the test of a killed process takes some 10.
const STEPS: usize = 1000;

#[test]
fn a_killed_process_is_a_lost_rank() {
    let (checkpoint, prompt) = (Checkpoint::new(fastrand::u64(..)), [3, 1, 4]);
    let port = processes::port();
    let mut other = processes::start(1, port, checkpoint.folder.path(), &prompt, STEPS);
    let deadline = Instant::now() + Duration::from_secs(60);
    let bootstrap = Tcp::connect(TcpConfig::new(format!("127.0.0.1:{port}"), 0, 2, deadline)).unwrap();
    let group = Group::open(bootstrap, &device(0).unwrap(), Config::default()).unwrap();
    let vb = weights(checkpoint.folder.path(), DType::F32, group.device()).unwrap();
    let room = Room { batch: 1, length: prompt.len() + STEPS };
    let model = Llama::load(&vb, &checkpoint.config, ModelNorm::Fused, room, &group).unwrap();
    let (mut steps, mut killed) = (0, None);
    let error = decode(
        &model,
        &prompt,
        STEPS,
        |_| false,
        |_, _| {
            steps += 1;
            if steps == 10 {
                other.0.kill()?;
                killed = Some(Instant::now());
            }
            Ok(())
        },
    );
    let (error, late) = (error.unwrap_err(), killed.unwrap().elapsed());
    assert!(steps < 20, "{steps} steps");
    assert!(matches!(failure(&error), Some(symmetra::Error::PeerLost { rank: 1, .. })), "{error}");
    assert!(late < Duration::from_secs(2), "{late:?}");
    let after = group.check().unwrap_err();
    assert_eq!(failure(&after), failure(&error));
}

#[test]
fn a_failure_is_found_under_every_wrapper() {
    let wrapped = || {
        let group = Group::threads(1, |bootstrap| Group::open(bootstrap, &Device::Cpu, Config::default()));
        let group = group.unwrap().pop().unwrap().unwrap();
        group.clone().close().unwrap();
        group.check().unwrap_err()
    };
    let again = |error: Error| -> Error { Err::<(), _>(error).context("step 3").unwrap_err() };
    let traced = |inner: Error| Error::WithBacktrace {
        inner: Box::new(inner),
        backtrace: Box::new(std::backtrace::Backtrace::force_capture()),
    };
    for (name, error) in [
        ("alone", wrapped()),
        ("context", wrapped().context("layer 3")),
        ("path", wrapped().with_path("model.safetensors")),
        ("backtrace", traced(wrapped())),
        ("context of a result", again(wrapped())),
        ("cuda", Error::Cuda(Box::new(wrapped()))),
        ("all", again(traced(wrapped().context("layer 3")).with_path("x"))),
    ] {
        assert_eq!(failure(&error), Some(&symmetra::Error::Closed), "{name}: {error}");
        assert!(error.to_string().contains("the group is closed"), "{name}: {error}");
    }
    assert_eq!(failure(&Error::msg("the group is closed")), None);
}

#[test]
fn ranks_of_unlike_shapes_are_a_mismatch() {
    let config = Config::default().check_calls(true);
    let errors = Group::threads(2, |bootstrap| {
        let device = &device(bootstrap.rank())?;
        let group = Group::open(bootstrap, device, config.clone())?;
        settle(&group, group.all_reduce(&Tensor::zeros(4 + group.rank(), DType::F32, device)?))
    });
    for error in errors.unwrap() {
        let error = error.unwrap_err();
        assert!(matches!(failure(&error), Some(symmetra::Error::Mismatch { .. })), "{error}");
    }
}

#[test]
fn a_step_that_a_rank_does_not_call_is_a_timeout() {
    let short = Duration::from_millis(300);
    let config = Config::default().deadlines(Deadlines::default().first_use(short).steady(short));
    let done = Barrier::new(2);
    let errors = Group::threads(2, |bootstrap| -> Result<_> {
        let device = &device(bootstrap.rank())?;
        let group = Group::open(bootstrap, device, config.clone())?;
        let call = || settle(&group, group.all_reduce(&Tensor::zeros(4, DType::F32, device)?));
        let found = (group.rank() == 0).then(call);
        done.wait();
        Ok(found)
    });
    let error = errors.unwrap().swap_remove(0).unwrap().unwrap().unwrap_err();
    assert!(matches!(failure(&error), Some(symmetra::Error::Timeout { rank: Some(1), .. })), "{error}");
}

/// The message of an error of the caller, which leaves the group healthy.
fn refused(error: &Error) -> String {
    match failure(error) {
        Some(error @ (symmetra::Error::InvalidArgument { .. } | symmetra::Error::Unsupported { .. })) => {
            error.to_string()
        }
        _ => panic!("{error}"),
    }
}

/// An error of candle without the backtrace that a variable adds.
fn bare(error: Error) -> Error {
    match error {
        Error::WithBacktrace { inner, .. } => *inner,
        error => error,
    }
}

#[test]
fn values_outside_their_limits_are_refused_with_their_names() {
    ranks(2, |group| {
        let device = group.device();
        let shorts = Tensor::new(&[1_i16, 2], device)?;
        let refusal = "a tensor of i16 is not supported: the types are";
        assert!(refused(&group.all_reduce(&shorts).unwrap_err()).starts_with(refusal));
        assert!(refused(&group.all_reduce_in_place(&shorts).unwrap_err()).starts_with(refusal));
        let odd = Tensor::zeros((3, 4), DType::F32, device)?;
        let refusal = "invalid argument: dimension 0 of the tensor is 3, but the world size 2 must divide it";
        assert_eq!(refused(&group.reduce_scatter(&odd, 0).unwrap_err()), refusal);
        assert_eq!(refused(&group.all_to_all(&odd).unwrap_err()), refusal);
        assert!(refused(&group.broadcast(&odd, 2).unwrap_err()).contains("root"));
        let outside = bare(group.all_gather(&odd, 2).unwrap_err());
        assert!(matches!(outside, Error::DimOutOfRange { .. }), "{outside}");
        let turned = bare(group.all_reduce_in_place(&odd.t()?).unwrap_err());
        assert!(matches!(turned, Error::RequiresContiguous { .. }), "{turned}");
        let weight = Tensor::zeros(6, DType::F32, device)?;
        let unlike = bare(group.all_reduce_norm(&odd, None, &weight, 1e-5).unwrap_err());
        assert!(matches!(unlike, Error::ShapeMismatchBinaryOp { .. }), "{unlike}");
        let (weight, halves) = (weight.narrow(0, 0, 4)?, odd.to_dtype(DType::BF16)?);
        let mixed = bare(group.all_reduce_norm(&halves, None, &weight, 1e-5).unwrap_err());
        assert!(matches!(mixed, Error::UnexpectedDType { .. }), "{mixed}");
        let wide = [&odd, &weight].map(|tensor| tensor.to_dtype(DType::F64).unwrap());
        refused(&group.all_reduce_norm(&wide[0], None, &wide[1], 1e-5).unwrap_err());
        let sum = group.all_reduce(&Tensor::ones(3, DType::F32, device)?)?;
        assert_eq!(sum.to_vec1::<f32>()?, [2.0; 3]);
        Ok(())
    });
}
