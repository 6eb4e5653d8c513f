//! Experts that go on without some ranks: the lost ranks, and the last dispatch that all have ended. Ranks that die:
//! `interrupted`.

use std::time::{Duration, Instant};

use symmetra::experts::{Combine, Method, Received, Survivors};

use crate::expert_errors::{METHODS, Operands, small};
use crate::support::world::Gate;
use crate::support::{Rank, config, threads};

/// Ranks that have dropped their experts do not take part, whether they drop them before the others ask (ranks 0 and 4)
/// or meanwhile (rank 2). All would meet at rank 0. No survivor waits for these ranks, whether the survivor names them
/// or not.
#[test]
fn ranks_that_have_dropped_their_experts_are_lost() {
    let gate = Gate::new(5);
    threads(5, &config(), |rank| {
        let experts = rank.communicator.experts(small(Method::Auto)).unwrap();
        let operands = Operands::new(rank, &experts, &[0, 5, 3, -1]);
        operands.round(rank, &experts).unwrap();
        let own = rank.rank();
        if own == 0 || own == 4 {
            drop(experts);
            gate.pass();
        } else {
            gate.pass();
            if own == 2 {
                std::thread::sleep(Duration::from_millis(300));
                drop(experts);
            } else {
                let start = Instant::now();
                let Survivors { experts, lost, .. } = experts.without(&[4][..usize::from(own == 3)]).unwrap();
                assert_eq!((lost, experts.local_experts().len()), (vec![0, 2, 4], 3));
                let (took, open) = (start.elapsed(), config().deadlines.open);
                assert!(took < open / 2, "{took:?} of {open:?}");
                let again = Rank {
                    communicator: experts.communicator().clone(),
                    stream: rank.stream.clone(),
                    device: rank.device.clone(),
                };
                let operands = Operands::new(&again, &experts, &[0, 5, 3, -1]);
                operands.round(&again, &experts).unwrap();
                assert_eq!(operands.output.read(&rank.stream).unwrap(), operands.expected(&again));
                drop((operands, experts));
                again.communicator.close().unwrap();
            }
        }
        gate.pass();
        rank.finish();
    });
}

/// Ranks know the end of different dispatches: the agreed dispatch is the last whose end all ranks know.
#[test]
fn survivors_agree_on_the_last_dispatch_that_all_have_ended() {
    for method in METHODS {
        let gate = Gate::new(3);
        threads(3, &config(), |rank| {
            let Rank { stream, .. } = rank;
            let experts = rank.communicator.experts(small(method)).unwrap();
            let operands = Operands::new(rank, &experts, &[0, 5, 3, -1]);
            let into = Received::rows(&operands.received);
            let dispatch = || experts.dispatch(&operands.routing(), &operands.rows, &into, stream).unwrap();
            let combine = |routed: symmetra::experts::Routed<'_>| {
                routed.combine(&operands.received, &operands.output, Combine::default(), stream).unwrap();
            };
            let graph = stream
                .capture(|capture| {
                    for _ in 0..2 {
                        let routed = experts.dispatch(&operands.routing(), &operands.rows, &into, capture)?;
                        routed.combine(&operands.received, &operands.output, Combine::default(), capture)?;
                    }
                    Ok(())
                })
                .unwrap();
            graph.register().unwrap();
            // Two launches of two dispatches, and one that was called.
            graph.launch(stream).unwrap();
            graph.launch(stream).unwrap();
            combine(dispatch());
            experts.synchronize(stream).unwrap();
            // One more dispatch, whose combine was not called yet when ranks synchronize.
            let held = dispatch();
            experts.synchronize(stream).unwrap();
            combine(held);
            // Rank 1 does not know that this dispatch has ended.
            match rank.rank() {
                1 => rank.communicator.synchronize(stream).unwrap(),
                _ => experts.synchronize(stream).unwrap(),
            }
            drop(graph);
            let Survivors { experts: again, lost, ended, .. } = experts.without(&[]).unwrap();
            assert_eq!((lost.len(), ended), (0, 5), "{method:?}");
            // Now rank 1 knows the end. All ranks have met, so they can meet again.
            gate.pass();
            experts.synchronize(stream).unwrap();
            let Survivors { experts: other, ended, .. } = experts.without(&[]).unwrap();
            assert_eq!(ended, 6, "{method:?}");
            // The new experts count from their own beginning.
            let Survivors { experts: third, ended, .. } = again.without(&[]).unwrap();
            assert_eq!(ended, 0);
            for experts in [third, other, again] {
                let communicator = experts.communicator().clone();
                drop(experts);
                communicator.close().unwrap();
            }
            gate.pass();
            rank.finish();
        });
    }
}
