//! The checks, in the order in which opening a group would meet them.

use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Resource, getrlimit};
use symmetra::{Device, DeviceKind};

use super::Finding;
use crate::all_reduce::{self, RanksAs};
use crate::bytes;
use crate::devices::RankDevice;
use crate::failure::Failure;

/// Runs every check and reports each as it is done.
pub(super) fn run(report: &mut dyn FnMut(Finding) -> Result<(), Failure>) -> Result<(), Failure> {
    report(sockets())?;
    report(shared_memory())?;
    report(locked_memory())?;
    report(group("2 ranks as threads on the CPU", [RankDevice::Host; 2], RanksAs::Threads))?;
    report(group("2 ranks as processes on the CPU", [RankDevice::Host; 2], RanksAs::Processes))?;
    let gpus = Device::count(DeviceKind::Cuda);
    report(driver(gpus))?;
    for one in 0..gpus {
        report(versions(one))?;
    }
    for one in 0..gpus {
        for other in one + 1..gpus {
            report(peers(one, other))?;
        }
    }
    Ok(())
}

fn sockets() -> Finding {
    let check = format!("unix sockets in {}", std::env::temp_dir().display());
    let tried = tempfile::Builder::new().prefix("symmetra-").permissions(Permissions::from_mode(0o700)).tempdir();
    let tried = tried.and_then(|directory| {
        let path = directory.path().join("rank0.sock");
        let listener = UnixListener::bind(&path)?;
        let _connected = UnixStream::connect(&path)?;
        listener.accept().map(drop)
    });
    match tried {
        Ok(()) => Finding::ok(check, "a rank can listen and another connect"),
        Err(error) => Finding::fail(
            check,
            error.to_string(),
            "point TMPDIR to a short path on a local file system that is yours to write",
        ),
    }
}

fn shared_memory() -> Finding {
    let check = "shared memory (memfd)";
    let tried = memfd_create("symmetra-doctor", MemfdFlags::CLOEXEC).map_err(std::io::Error::from).and_then(|fd| {
        let file = std::fs::File::from(fd);
        file.set_len(1 << 20)?;
        file.write_all_at(b"pattern", 1 << 19)?;
        let mut read = [0; 7];
        file.read_exact_at(&mut read, 1 << 19)?;
        Ok(read == *b"pattern")
    });
    match tried {
        Ok(true) => Finding::ok(check, "it can be made and keeps what is written"),
        Ok(false) => Finding::fail(check, "it does not keep what is written", "check the system's memory"),
        Err(error) => Finding::fail(check, error.to_string(), "allow memfd_create in the container's seccomp profile"),
    }
}

/// Most that one group pins: its control page.
const PINNED_BYTES: u64 = 64 << 10;

fn locked_memory() -> Finding {
    let check = "locked memory (ulimit -l)";
    match getrlimit(Resource::Memlock).current {
        None => Finding::ok(check, "unlimited"),
        Some(limit) if limit >= PINNED_BYTES => Finding::ok(check, format!("{} may be locked", bytes::format(limit))),
        Some(limit) => Finding::fail(
            check,
            format!("{} may be locked, GPU groups need {} a rank", bytes::format(limit), bytes::format(PINNED_BYTES)),
            "raise it: `ulimit -l unlimited`, memlock in /etc/security/limits.conf, or `docker run --ulimit memlock=-1`",
        ),
    }
}

/// Opens a real group and reduces in it.
fn group(check: &str, devices: [RankDevice; 2], ranks_as: RanksAs) -> Finding {
    match probe(devices, ranks_as) {
        Ok(detail) => Finding::ok(check, detail),
        Err(detail) => Finding::fail(check, detail, "the message says what was refused; RUST_LOG=debug says more"),
    }
}

/// Sums a pattern between two ranks, through every algorithm: packets, their flags, and direct
/// reads and writes in both directions. Bounded by deadlines.
fn probe(devices: [RankDevice; 2], ranks_as: RanksAs) -> Result<String, String> {
    match all_reduce::probe(&devices, ranks_as) {
        Ok(wrong) if wrong.iter().all(|wrong| *wrong == 0) => Ok("sums are right".to_owned()),
        Ok(wrong) => Err(format!("{} elements are wrong in rank 0, {} in rank 1", wrong[0], wrong[1])),
        Err(failure) => Err(failure.message().unwrap_or_else(|| "no reason given".to_owned())),
    }
}

fn driver(gpus: usize) -> Finding {
    let check = "CUDA driver";
    let loaded = Path::new("/dev/nvidiactl").exists();
    match (cfg!(feature = "cuda"), gpus, loaded) {
        (false, _, _) => Finding::none(check, "this build has no CUDA (cargo build --features cuda)"),
        (true, 0, false) => Finding::none(check, "there is none, so ranks work on the CPU"),
        (true, 0, true) => Finding::fail(
            check,
            "a driver is loaded, but shows no device",
            "see that CUDA_VISIBLE_DEVICES names a device, and that the driver is not older than the toolkit of this build",
        ),
        (true, gpus, _) => Finding::ok(check, format!("{gpus} devices")),
    }
}

fn versions(ordinal: usize) -> Finding {
    let check = format!("cuda {ordinal}");
    match Device::cuda(ordinal) {
        Ok(device) => Finding::ok(check, format!("{}, {}", device.name(), device.versions())),
        Err(error) => {
            Finding::fail(check, error.to_string(), "install a driver that is not older than the toolkit of this build")
        }
    }
}

/// One pair of GPUs, both ways: what the driver reports, then what is true.
fn peers(one: usize, other: usize) -> Finding {
    let check = format!("peer access cuda {one} <-> cuda {other}");
    let reports = |from: usize, to: usize| Device::cuda(from).and_then(|device| device.can_access(to as i32));
    for (from, to) in [(one, other), (other, one)] {
        match reports(from, to) {
            Ok(true) => {}
            Ok(false) => {
                let remedy = "see `nvidia-smi topo -p2p r`: the GPUs need NVLink or a common PCIe root, and no ACS or virtual machine between";
                return Finding::fail(check, format!("cuda {from} cannot address memory of cuda {to}"), remedy);
            }
            Err(error) => {
                return Finding::fail(check, error.to_string(), "see that both devices are healthy: `nvidia-smi`");
            }
        }
    }
    match probe([RankDevice::Cuda(one), RankDevice::Cuda(other)], RanksAs::Threads) {
        Ok(detail) => Finding::ok(check, format!("pattern and flags arrive both ways: {detail}")),
        Err(detail) => {
            let remedy =
                "peer access is reported but does not work: turn off ACS and the IOMMU, or update firmware and driver";
            Finding::fail(check, detail, remedy)
        }
    }
}
