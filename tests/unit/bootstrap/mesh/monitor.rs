//! The monitor of a mesh.

use std::sync::mpsc::Receiver;

use super::*;
use crate::bootstrap::monitor::Monitor;

pub(super) fn reports(mesh: &Mesh) -> (Monitor, Receiver<(usize, Instant)>) {
    let (report, reports) = channel();
    let on_lost = move |rank| {
        let _ = report.send((rank, Instant::now()));
    };
    (Monitor::start(mesh, on_lost, || ()).unwrap(), reports)
}

#[test]
fn pitfall_1_the_monitor_reports_each_rank_once_and_reads_nothing() {
    let together = std::sync::Barrier::new(4);
    on_meshes(4, |mut mesh| {
        let rank = mesh.rank();
        let (mut monitor, reports) = reports(&mesh);
        // Bytes that wait in the sockets are left alone.
        converse(&mut mesh);
        thread::sleep(Duration::from_millis(20 * rank as u64));
        converse(&mut mesh);
        let mut mesh = Some(mesh);
        for leaving in [2, 3] {
            together.wait();
            if rank == leaving {
                mesh = None;
                assert!(reports.recv_timeout(Duration::from_millis(100)).is_err(), "our own end is no death");
            } else if mesh.is_some() {
                assert_eq!(reports.recv_timeout(Duration::from_secs(5)).unwrap().0, leaving);
            }
        }
        monitor.stop();
        monitor.stop();
        assert!(reports.try_recv().is_err());
        together.wait();
    });
}

#[test]
fn a_monitor_may_be_dropped_by_its_own_report() {
    on_meshes(2, |mesh| {
        if mesh.rank() == 1 {
            return;
        }
        let slot: Arc<parking_lot::Mutex<Option<Monitor>>> = Arc::default();
        let (report, reports) = channel();
        let inner = Arc::clone(&slot);
        let mut held = slot.lock();
        let on_lost = move |rank| {
            drop(inner.lock().take());
            let _ = report.send(rank);
        };
        *held = Some(Monitor::start(&mesh, on_lost, || ()).unwrap());
        drop(held);
        assert_eq!(reports.recv_timeout(Duration::from_secs(5)), Ok(1));
        assert!(slot.lock().is_none());
    });
}
