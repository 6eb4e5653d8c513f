//! The device of a rank.

use symmetra::{Device, DeviceKind, HostShape};

/// Environment variable: set when every rank uses the first GPU that it sees.
pub const FIRST: &str = "SYMMETRA_TEST_FIRST_GPU";

/// The kind of device that `SYMMETRA_TEST_DEVICE` chooses.
pub fn kind() -> DeviceKind {
    match std::env::var("SYMMETRA_TEST_DEVICE").as_deref() {
        Err(_) | Ok("" | "host") => DeviceKind::Host,
        Ok("cuda") if cfg!(feature = "cuda") => DeviceKind::Cuda,
        Ok("cuda") => panic!("SYMMETRA_TEST_DEVICE=cuda, but these tests were built without the feature `cuda`"),
        Ok(other) => panic!("SYMMETRA_TEST_DEVICE is `{other}`, it must be host or cuda"),
    }
}

/// Whether the tests run on the CPU, where this process shows the device's resources.
pub fn is_host() -> bool {
    kind() == DeviceKind::Host
}

/// Whether tests of NCCL cannot run: set `SYMMETRA_TEST_DEVICE=cuda` and `SYMMETRA_NCCL_LIBRARY`.
pub fn lacks_nccl() -> bool {
    let lacking = is_host() || std::env::var_os("SYMMETRA_NCCL_LIBRARY").is_none();
    if lacking {
        eprintln!("skipped: NCCL works on GPUs only, and SYMMETRA_NCCL_LIBRARY must name it");
    }
    lacking
}

/// The device of a rank; ranks get GPUs in turn.
pub fn device(rank: usize) -> Device {
    match kind() {
        DeviceKind::Cuda if std::env::var_os(FIRST).is_some() => Device::cuda(0).unwrap(),
        DeviceKind::Cuda => Device::cuda(rank % gpus()).unwrap(),
        _ => Device::host_with(shape()).unwrap(),
    }
}

/// Whether a world of this size can run here: ranks on one GPU cannot wait for each other. Prints when not.
pub fn fits(world: usize) -> bool {
    let fits = is_host() || world <= gpus();
    if !fits {
        eprintln!("skipped: a world of {world} ranks on {} GPUs", gpus());
    }
    fits
}

fn gpus() -> usize {
    let count = Device::count(DeviceKind::Cuda);
    assert!(count > 0, "SYMMETRA_TEST_DEVICE=cuda, but there is no GPU");
    count
}

/// Blocks and threads of host launches, from `SYMMETRA_TEST_SHAPE`.
pub fn shape() -> HostShape {
    let Ok(shape) = std::env::var("SYMMETRA_TEST_SHAPE") else { return HostShape::default() };
    let numbers =
        shape.split_once('x').and_then(|(blocks, threads)| Some((blocks.parse().ok()?, threads.parse().ok()?)));
    let Some((blocks, threads)) = numbers else { panic!("SYMMETRA_TEST_SHAPE is `{shape}`, it must be like 2x3") };
    HostShape::default().blocks(blocks).threads(threads)
}
