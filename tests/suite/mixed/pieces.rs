//! Messages in pieces that take unequal workspace: lengths around the cuts, which need not be multiples of the tensor
//! ranks, and data ranks of unequal rows. Results are right, and the symmetric memory before and after the workspace is
//! untouched.

use super::*;

/// The value of the bytes around the workspace.
const CANARY: u8 = 0xA5;
const CANARY_BYTES: usize = 64 << 10;

/// Elements around the places where pieces are cut, up to twice the elements of one piece.
fn lens(most_elems: usize) -> Vec<usize> {
    let cuts = (0..=2 * most_elems + 128).step_by(128).skip(1);
    cuts.flat_map(|cut| cut - 1..=cut + 1).collect()
}

/// Rows of data ranks: equal numbers, and unequal numbers whose last pieces are staged.
fn rows(mixed: &Mixed, len: usize) -> Vec<Vec<usize>> {
    let of = |counts: [usize; 2]| -> Vec<usize> { (0..mixed.data_size()).map(|at| counts[at % 2]).collect() };
    let mut all = vec![of([len, len])];
    if mixed.data_size() > 1 {
        all.extend([of([len, len.saturating_sub(1)]), of([1, len])]);
    }
    all
}

fn check_type<T: Sample>(
    (mixed, group): (&Mixed, &Coordinator),
    at: (&[usize; 4], &[usize]),
    lens: &[usize],
    untouched: &dyn Fn(&str),
) {
    for operation in mixed.operations() {
        for mode in mixed.modes(operation).into_iter().chain([MixedMode::Auto]) {
            for len in lens.iter().copied() {
                for rows in rows(mixed, len) {
                    let case = Case { operation, mode, rows: &rows, reduction: Reduction::Sum, memory: Memory::Plain };
                    case.check::<T>(mixed, group, at, mix(len as u64));
                    untouched(&format!("{operation} by {mode} of {rows:?} {}", T::DTYPE));
                }
            }
        }
    }
}

fn run_pieces(sizes: [usize; 4], hosts: &[usize], most_bytes: usize) {
    meet(hosts.len(), |bootstrap| {
        let group = open(bootstrap, hosts, |config| config.communicator.check_calls = false);
        let stream = Stream::new(group.device()).unwrap();
        let canary = || group.local().symmetric::<u8>(CANARY_BYTES).unwrap();
        let before = canary();
        let mut config = grid(sizes);
        config.most_bytes = most_bytes;
        let mixed = Mixed::open(&group, &config).unwrap();
        let behind = canary();
        for canary in [&before, &behind] {
            canary.write(&[CANARY; CANARY_BYTES], &stream).unwrap();
        }
        group.barrier().unwrap();
        let untouched = |what: &str| {
            // Peers might write outside the workspace too, so their calls must be done.
            group.barrier().unwrap();
            for (canary, place) in [(&before, "before"), (&behind, "behind")] {
                let bytes = canary.read(&stream).unwrap();
                let overwritten = bytes.iter().filter(|byte| **byte != CANARY).count();
                assert_eq!(overwritten, 0, "{what} wrote {place} the workspace of {most_bytes} bytes on {sizes:?}");
            }
            group.barrier().unwrap();
        };
        let over = (&mixed, &group);
        let lens = |number, bytes| {
            let all = lens(most_bytes / bytes);
            if all.len() > 16 { cases_of(hosts.len(), number, all) } else { all }
        };
        check_type::<f32>(over, (&sizes, hosts), &lens(0, 4), &untouched);
        check_type::<u8>(over, (&sizes, hosts), &lens(1, 1), &untouched);
        check_type::<bf16>(over, (&sizes, hosts), &lens(2, 2), &untouched);
        mixed.close().unwrap();
        drop((before, behind));
        group.close().unwrap();
    });
}

#[test]
fn every_piece_of_a_long_message_fits_the_workspace() {
    let few = [[2, 1], [1, 2], [2, 2], [3, 2]];
    for [tensor, data] in few.into_iter().chain([[3, 1], [4, 2], [2, 4], [4, 1]].into_iter().filter(|_| full())) {
        run_pieces([tensor, data, 1, 1], &vec![0; tensor * data], 2 << 10);
    }
}

/// Workspaces for a few elements: each mode runs, in pieces of a few elements.
#[test]
fn a_workspace_for_a_few_elements_takes_every_mode() {
    for most_bytes in [4, 20, 400] {
        run_pieces([2, 2, 1, 1], &[0; 4], most_bytes);
    }
}

#[cfg(feature = "gloo")]
#[test]
fn every_piece_fits_the_workspace_on_several_hosts() {
    if is_host() {
        run_pieces([2, 1, 2, 1], &[0, 0, 1, 1], 2 << 10);
        run_pieces([2, 1, 1, 2], &[0, 0, 1, 1], 2 << 10);
        if full() {
            run_pieces([2, 2, 1, 2], &[0, 0, 0, 0, 1, 1, 1, 1], 2 << 10);
            run_pieces([3, 1, 1, 2], &[0, 0, 0, 1, 1, 1], 2 << 10);
        }
    }
}
