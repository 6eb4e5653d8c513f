//! Crossovers measured on a machine select the algorithms, alike on every rank.

use crate::support::device::kind;
use crate::support::world::{meet, open};
use crate::support::{Rank, config, is_host, threads};
use symmetra::bootstrap::Bootstrap;
use symmetra::experts::{Combine, ExpertConfig, Method, Received, Routing};
use symmetra::float8::F8E4M3;
use symmetra::{
    Algorithm, Config, Determinism, DeviceBuffer, Dtype, Error, Narrow, Quantisation, Result, RmsNorm, RowNorm,
    ScaleLayout, SymmetricBuffer, TunedExperts, TunedNorm, TunedRow, TunedTable, Tuning,
};

/// Small messages by the algorithm that the built-in table keeps for the largest.
fn tuning(limit_bytes: u64, exact: bool) -> Tuning {
    let row = |up_to_bytes, algorithm: Algorithm| {
        TunedRow::default().up_to_bytes(up_to_bytes).algorithm(algorithm.to_string())
    };
    let rows = vec![row(Some(limit_bytes), Algorithm::TwoShotZeroCopy), row(None, Algorithm::OneShotSentinel)];
    let table = TunedTable::default().world_size(2).floating(true).direct(true).exact(exact).rows(rows);
    Tuning::default().kind(kind().name().to_owned()).tables(vec![table])
}

/// Every call is compared across ranks.
fn checked(tuning: Tuning) -> Config {
    let mut config = config();
    (config.tuning, config.check_calls) = (Some(tuning), true);
    config
}

#[test]
fn a_tuning_decides_what_runs() {
    threads(2, &checked(tuning(4096, false)), |rank| {
        let (communicator, stream) = (&rank.communicator, &rank.stream);
        let ranges = communicator.explain(Dtype::F32, true);
        let algorithms: Vec<_> = ranges.iter().map(|range| (range.up_to_bytes, range.choice)).collect();
        assert_eq!(algorithms, [(4096, Algorithm::TwoShotZeroCopy), (u64::MAX, Algorithm::OneShotSentinel)]);
        assert!(ranges[0].reason.contains("symmetra tune"));
        for (elems, tuned) in [(1024, Algorithm::TwoShotZeroCopy), (1025, Algorithm::OneShotSentinel)] {
            let buffer = communicator.symmetric::<f32>(elems).unwrap();
            buffer.write(&vec![1.5; elems], stream).unwrap();
            auto_meets(tuned, rank, &buffer).unwrap();
            assert_eq!(buffer.read(stream).unwrap(), vec![3.0; elems]);
        }
    });
}

/// Rank 0 leaves the choice to the library, the other names the algorithm: ranks compare the algorithms.
fn auto_meets(tuned: Algorithm, rank: &Rank, buffer: &SymmetricBuffer<f32>) -> Result<()> {
    let algorithm = if rank.rank() == 0 { Algorithm::Auto } else { tuned };
    rank.communicator.all_reduce_with(algorithm, buffer, buffer, &rank.stream)?;
    rank.communicator.synchronize(&rank.stream)
}

/// Rank 0 leaves the choice to the library, the other names the algorithm.
#[test]
fn a_tuning_decides_how_norms_run() {
    let row =
        |up_to_bytes, algorithm: &str| TunedRow::default().up_to_bytes(up_to_bytes).algorithm(algorithm.to_owned());
    let rows = vec![row(Some(1024), "two-shot-sentinel"), row(None, "apart")];
    let norms = vec![TunedNorm::default().world_size(2).hidden(64).rows(rows)];
    let config = checked(tuning(4096, false).norms(norms));
    threads(2, &config, |rank| {
        let (communicator, stream) = (&rank.communicator, &rank.stream);
        let ranges = communicator.explain_norm(Dtype::F32, 64, true);
        let algorithms: Vec<_> = ranges.iter().map(|range| (range.up_to_bytes, range.choice)).collect();
        let expected = [
            (1024, Algorithm::TwoShotSentinel),
            (4096, Algorithm::TwoShotZeroCopy),
            (u64::MAX, Algorithm::OneShotSentinel),
        ];
        assert_eq!(algorithms, expected);
        for (rows, tuned) in [(4, Algorithm::TwoShotSentinel), (5, Algorithm::TwoShotZeroCopy)] {
            let [input, output] = [(); 2].map(|()| communicator.symmetric::<f32>(rows * 64).unwrap());
            let weight = communicator.symmetric::<f32>(64).unwrap();
            input.write(&vec![1.5; rows * 64], stream).unwrap();
            weight.write(&[2.0; 64], stream).unwrap();
            let norm = RowNorm::new(&input, &weight, RmsNorm::new(0.0)).output(&output);
            let named = norm.algorithm(if rank.rank() == 0 { Algorithm::Auto } else { tuned });
            communicator.all_reduce_norm(named, stream).unwrap();
            communicator.synchronize(stream).unwrap();
            assert_eq!(output.read(stream).unwrap(), vec![2.0; rows * 64]);
        }
    });
}

/// The explanation for quantised rows describes the algorithm that runs: rank 0 leaves the choice to the library, the
/// other names the algorithm of the explanation. Without a place for the sum, rows stay in the scratch of the two-shot.
#[test]
fn quantised_norms_run_as_explained() {
    let row =
        |up_to_bytes, algorithm: &str| TunedRow::default().up_to_bytes(up_to_bytes).algorithm(algorithm.to_owned());
    let rows = vec![row(Some(1024), "one-shot-sentinel"), row(None, "apart")];
    let norms = vec![TunedNorm::default().world_size(2).hidden(64).rows(rows)];
    threads(2, &checked(tuning(4096, false).norms(norms)), |rank| {
        let (communicator, stream) = (&rank.communicator, &rank.stream);
        let how = Quantisation::PerToken(Narrow::E4M3);
        let explained = |placed| {
            let ranges = communicator.explain_quantised_norm(Dtype::F32, 64, 64, how, true, placed).unwrap();
            ranges.iter().map(|range| (range.up_to_bytes, range.choice)).collect::<Vec<_>>()
        };
        let placed = [
            (1024, Algorithm::OneShotSentinel),
            (4096, Algorithm::TwoShotZeroCopy),
            (u64::MAX, Algorithm::OneShotSentinel),
        ];
        assert_eq!(explained(true), placed);
        assert_eq!(explained(false), [(1024, Algorithm::OneShotSentinel), (u64::MAX, Algorithm::TwoShotSentinel)]);
        for (rows, placed) in [(4, true), (4, false), (5, true), (5, false)] {
            let bytes = (rows * 64 * size_of::<f32>()) as u64;
            let ranges = explained(placed);
            let algorithm = ranges.iter().find(|range| bytes <= range.0).unwrap().1;
            let [input, output] = [(); 2].map(|()| communicator.symmetric::<f32>(rows * 64).unwrap());
            let weight = communicator.symmetric::<f32>(64).unwrap();
            input.write(&vec![1.5; rows * 64], stream).unwrap();
            weight.write(&[2.0; 64], stream).unwrap();
            let codes = DeviceBuffer::<F8E4M3>::new(communicator.device(), rows * 64).unwrap();
            let scales = DeviceBuffer::<f32>::new(communicator.device(), rows).unwrap();
            let norm = RowNorm::new(&input, &weight, RmsNorm::new(0.0)).quantised(how, &codes, &scales);
            let norm = if placed { norm.output(&output) } else { norm };
            let named = norm.algorithm(if rank.rank() == 0 { Algorithm::Auto } else { algorithm });
            communicator.all_reduce_norm(named, stream).unwrap();
            communicator.synchronize(stream).unwrap();
            assert_eq!(scales.read(stream).unwrap(), vec![2.0 / 448.0; rows]);
        }
        let wrong = |hidden, how| {
            communicator.explain_quantised_norm(Dtype::F32, hidden, hidden, how, true, false).unwrap_err()
        };
        let columns = Quantisation::Mx { to: Narrow::E4M3, elems: 32, layout: ScaleLayout::Columns };
        assert!(wrong(64, columns).to_string().contains("the layout of scales"));
        assert!(wrong(65, Quantisation::mxfp8()).to_string().contains("pad rows to 96"));
        assert!(matches!(wrong(1 << 20, how), Error::Unsupported { .. }));
        let padded = |width| communicator.explain_quantised_norm(Dtype::F32, 65, width, how, true, false);
        assert!(padded(96).is_ok());
        assert!(padded(64).unwrap_err().to_string().contains("width of an output row is 64"));
    });
}

/// Many shapes of rows, plain and quantised, with a place for their sum and without one, in scratch that has no room for
/// the longest: rank 0 leaves the choice to the library, the other names the algorithm of the explanation. Ranks that run
/// different algorithms fail.
#[test]
fn norms_of_many_shapes_run_as_explained() {
    let mut small = config();
    (small.check_calls, small.heap_bytes) = (true, 32 << 20);
    (small.one_shot_sentinel_bytes, small.two_shot_sentinel_bytes) = (Some(16 << 10), 64 << 10);
    threads(2, &small, |rank| {
        let (communicator, stream) = (&rank.communicator, &rank.stream);
        let mut ran = Vec::new();
        for (hidden, count) in
            [(4usize, 1usize), (33, 7), (64, 15), (64, 17), (500, 3), (1000, 40), (3000, 2), (20_000, 3)]
        {
            for (how, width) in [
                (None, hidden),
                (Some(Quantisation::PerToken(Narrow::E4M3)), hidden),
                (Some(Quantisation::mxfp8()), hidden.next_multiple_of(32)),
            ] {
                for (placed, symmetric) in [(true, true), (true, false), (false, true)] {
                    let bytes = (count * hidden * size_of::<f32>()) as u64;
                    let ranges = match how {
                        Some(how) => {
                            communicator.explain_quantised_norm(Dtype::F32, hidden, width, how, symmetric, placed)
                        }
                        None if placed => Ok(communicator.explain_norm(Dtype::F32, hidden, symmetric)),
                        None => continue,
                    };
                    let ranges = match ranges {
                        Ok(ranges) => ranges,
                        Err(Error::Unsupported { .. }) if !placed && hidden == 20_000 => continue,
                        Err(error) => panic!("{hidden}, {how:?}: {error}"),
                    };
                    let algorithm = ranges.at(bytes).unwrap().choice;
                    ran.push(algorithm);
                    let named = if rank.rank() == 0 { Algorithm::Auto } else { algorithm };
                    let [near, sum] = [(); 2].map(|()| communicator.symmetric::<f32>(count * hidden).unwrap());
                    let [far, plain_sum] =
                        [(); 2].map(|()| DeviceBuffer::<f32>::new(&rank.device, count * hidden).unwrap());
                    let weight = DeviceBuffer::<f32>::new(&rank.device, hidden).unwrap();
                    let codes = DeviceBuffer::<F8E4M3>::new(&rank.device, count * width).unwrap();
                    let norm = RmsNorm::new(1.0);
                    let rows = match symmetric {
                        true => RowNorm::new(&near, &weight, norm),
                        false => RowNorm::new(&far, &weight, norm),
                    };
                    let rows = match (placed, symmetric) {
                        (true, true) => rows.residual_out(&sum),
                        (true, false) => rows.residual_out(&plain_sum),
                        (false, _) => rows,
                    };
                    let scales_len = how.map_or(1, |how| how.scales_len(count, width));
                    let floats = DeviceBuffer::<f32>::new(&rank.device, scales_len).unwrap();
                    let powers = DeviceBuffer::<u8>::new(&rank.device, scales_len).unwrap();
                    let rows = match how {
                        Some(how @ Quantisation::PerToken(_)) => rows.quantised(how, &codes, &floats),
                        Some(how) => rows.quantised(how, &codes, &powers),
                        None => rows,
                    };
                    communicator.all_reduce_norm(rows.padded_to(width).algorithm(named), stream).unwrap();
                    communicator.synchronize(stream).unwrap_or_else(|error| {
                        panic!("{hidden} x {count}, {how:?}, placed {placed}, symmetric {symmetric}: {error}")
                    });
                }
            }
        }
        // On GPUs one-shot serves two ranks wherever it has room.
        let all = [Algorithm::OneShotSentinel, Algorithm::TwoShotSentinel, Algorithm::TwoShotZeroCopy];
        let expected = if is_host() { &all[..] } else { &all[..1] };
        assert!(expected.iter().all(|algorithm| ran.contains(algorithm)), "{ran:?}");
    });
}

/// Every rank takes the method of the file, and the rows go where they should.
#[test]
fn a_tuning_decides_the_method_of_experts() {
    let row =
        |up_to_bytes, algorithm: &str| TunedRow::default().up_to_bytes(up_to_bytes).algorithm(algorithm.to_owned());
    let tuned = |rows| {
        let experts = vec![TunedExperts::default().world_size(2).experts(2).top_k(1).hidden(4).rows(rows)];
        checked(tuning(4096, false).experts(experts))
    };
    let layer = |tokens| {
        let mut config = ExpertConfig::new(2, 1, 4, tokens);
        config.dtype = Dtype::F32;
        config
    };
    // Rows of 16 bytes.
    threads(2, &tuned(vec![row(Some(32), "direct"), row(None, "packets")]), |rank| {
        for (tokens, method) in [(1, Method::Direct), (2, Method::Direct), (3, Method::Packets)] {
            let experts = rank.communicator.experts(layer(tokens)).unwrap();
            assert_eq!(experts.method(), method, "{tokens} tokens");
            let serves = experts.explain().into_iter().find(|explained| explained.serves).unwrap();
            assert_eq!(serves.method, method);
            assert!(serves.reason.contains("measured on this machine by `symmetra tune`"), "{serves}");
            // To the expert of the other rank and back.
            let stream = &rank.stream;
            let ids = DeviceBuffer::from_slice(&vec![1 - rank.rank() as i32; tokens], stream).unwrap();
            let rows: Vec<f32> = (0..tokens * 4).map(|index| (index + rank.rank()) as f32).collect();
            let hidden = DeviceBuffer::from_slice(&rows, stream).unwrap();
            let received = DeviceBuffer::from_slice(&vec![0f32; experts.capacity() * 4], stream).unwrap();
            let output = DeviceBuffer::from_slice(&vec![0f32; tokens * 4], stream).unwrap();
            let routing = Routing::new(&ids);
            let routed = experts.dispatch(&routing, &hidden, &Received::rows(&received), stream).unwrap();
            routed.combine(&received, &output, Combine::default(), stream).unwrap();
            rank.communicator.synchronize(stream).unwrap();
            assert_eq!(output.read(stream).unwrap(), rows);
        }
    });
    let errors = meet(2, |bootstrap| open(bootstrap, &tuned(vec![row(None, "ring")])).map(drop).unwrap_err());
    let [words, limit] =
        ["experts[0].rows[0].algorithm of the tuning is ring", "but it must be one of packets, direct"];
    for error in errors {
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        assert!(error.to_string().contains(words) && error.to_string().contains(limit), "{error}");
    }
}

/// The property that the tests of all-reduces and norms rely on.
#[test]
fn a_choice_that_is_not_the_tuned_one_is_a_mismatch() {
    for (elems, other) in [(1024, Algorithm::OneShotSentinel), (1025, Algorithm::TwoShotZeroCopy)] {
        let errors = meet(2, |bootstrap| {
            let rank = open(bootstrap, &checked(tuning(4096, false))).unwrap();
            let buffer = rank.communicator.symmetric::<f32>(elems).unwrap();
            auto_meets(other, &rank, &buffer).unwrap_err()
        });
        assert!(errors.iter().all(|error| matches!(error, Error::Mismatch { .. })), "{errors:?}");
    }
}

#[test]
fn exact_determinism_has_tables_of_its_own() {
    for (determinism, exact) in [(Determinism::Exact, true), (Determinism::PerAlgorithm, false)] {
        let mut config = config();
        config.determinism = determinism;
        for tuned in [true, false] {
            config.tuning = Some(tuning(4096, tuned));
            threads(2, &config, |rank| {
                let reason = rank.communicator.explain(Dtype::F32, true)[0].reason;
                assert_eq!(reason.contains("symmetra tune"), tuned == exact, "{reason}");
            });
        }
    }
}

#[test]
fn pitfall_04_ranks_with_different_tunings() {
    let errors = meet(2, |bootstrap| {
        let mut config = config();
        config.tuning = Some(tuning(4096 + bootstrap.rank() as u64, false));
        open(bootstrap, &config).map(drop).unwrap_err()
    });
    for error in errors {
        assert!(matches!(&error, Error::Mismatch { what, rank: 1, .. } if what == "tuning"), "{error}");
    }
}
