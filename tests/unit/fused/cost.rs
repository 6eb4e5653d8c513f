use super::*;

/// The collective that is fused with a GEMM.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fused {
    AllGather,
    ReduceScatter,
    AllReduce,
}

/// Measured on H100 and H200 with NVLink, bf16, in graphs: a layer of Llama-3 70B with K and N of a rank's GEMM.
struct Layer {
    fused: Fused,
    world: usize,
    name: &'static str,
    sizes: (usize, usize),
    /// Rows, and the microseconds of pipeline and sequence. Of two runs of a way, the mean.
    times: &'static [(usize, f64, f64)],
}

const fn layer(
    (fused, world): (Fused, usize),
    name: &'static str,
    sizes: (usize, usize),
    times: &'static [(usize, f64, f64)],
) -> Layer {
    Layer { fused, world, name, sizes, times }
}

const OUT: (usize, usize) = (4096, 8192);

const MEASURED: [Layer; 13] = [
    layer(
        (Fused::AllGather, 2),
        "qkv",
        (8192, 5120),
        &[(512, 79.7, 77.6), (1024, 127.9, 149.8), (2048, 249.8, 301.8), (4096, 493.3, 602.7)],
    ),
    layer(
        (Fused::AllGather, 2),
        "gate_up",
        (8192, 28672),
        &[(512, 435.3, 382.6), (1024, 712.1, 778.3), (2048, 1449.0, 1496.0), (4096, 2831.0, 2956.0)],
    ),
    layer(
        (Fused::AllGather, 4),
        "qkv",
        (8192, 2560),
        &[(512, 78.0, 54.0), (1024, 105.9, 98.6), (2048, 137.8, 197.3), (4096, 263.8, 383.0), (8192, 487.0, 786.0)],
    ),
    layer(
        (Fused::AllGather, 4),
        "gate_up",
        (8192, 14336),
        &[
            (512, 256.6, 216.3),
            (1024, 389.7, 406.7),
            (2048, 809.0, 780.4),
            (4096, 1416.5, 1630.0),
            (8192, 2894.5, 3194.0),
        ],
    ),
    layer((Fused::AllGather, 4), "a square", (8192, 2048), &[(4096, 210.3, 332.0)]),
    layer(
        (Fused::ReduceScatter, 2),
        "o",
        OUT,
        &[
            (128, 65.2, 40.2),
            (512, 64.2, 63.0),
            (1024, 108.2, 126.3),
            (2048, 220.9, 268.6),
            (4096, 457.6, 502.4),
            (8192, 869.2, 1040.0),
        ],
    ),
    layer(
        (Fused::ReduceScatter, 2),
        "down",
        (14336, 8192),
        &[
            (128, 177.0, 96.8),
            (512, 194.4, 183.3),
            (1024, 365.6, 396.9),
            (2048, 712.8, 776.8),
            (4096, 1440.0, 1526.0),
            (8192, 2911.5, 3114.0),
        ],
    ),
    layer(
        (Fused::ReduceScatter, 4),
        "o",
        (2048, 8192),
        &[(512, 57.8, 52.6), (1024, 84.5, 93.2), (2048, 135.0, 184.2), (4096, 241.0, 356.0), (8192, 503.0, 704.0)],
    ),
    layer(
        (Fused::ReduceScatter, 4),
        "down",
        (7168, 8192),
        &[
            (512, 142.1, 111.4),
            (1024, 192.1, 218.9),
            (2048, 360.8, 436.3),
            (4096, 740.0, 875.0),
            (8192, 1508.0, 1755.0),
        ],
    ),
    layer(
        (Fused::AllReduce, 2),
        "o",
        OUT,
        &[(16, 66.7, 30.3), (64, 74.9, 34.1), (128, 77.0, 39.3), (1024, 143.2, 148.3), (4096, 530.1, 568.7)],
    ),
    layer(
        (Fused::AllReduce, 2),
        "down",
        (14336, 8192),
        &[(16, 177.3, 85.5), (64, 186.3, 89.7), (128, 188.3, 96.5), (1024, 400.6, 398.4), (4096, 1548.0, 1572.0)],
    ),
    layer(
        (Fused::AllReduce, 4),
        "o",
        (2048, 8192),
        &[(1024, 128.2, 127.1), (2048, 215.0, 245.0), (4096, 398.0, 477.0)],
    ),
    layer(
        (Fused::AllReduce, 4),
        "down",
        (7168, 8192),
        &[(1024, 239.9, 247.2), (2048, 436.8, 494.1), (4096, 837.6, 958.3)],
    ),
];

/// Rows where the model chooses the sequence, which was slower by more than 2 %: by 4.4 and 3.6 %. Constants that choose the
/// pipeline there choose it at 2048 rows of `gate_up` too, where it is slower by 3.7 %.
const NEAR: [(Fused, usize, &str, usize); 2] =
    [(Fused::AllGather, 4, "gate_up", 1024), (Fused::AllReduce, 2, "o", 1024)];

fn product((inner, columns): (usize, usize)) -> Product {
    Product::new(inner, columns, Numeric::BF16)
}

fn cost(fused: Fused, world: usize, sizes: (usize, usize), rows: usize) -> Cost {
    let moved = if fused == Fused::AllGather { sizes.0 } else { sizes.1 };
    let work = PlanWork { world, products: &[product(sizes)], rows, part_bytes: rows / world * moved * 2 };
    match fused {
        Fused::AllGather => work.gathered(),
        Fused::ReduceScatter => work.scattered(),
        Fused::AllReduce => work.all_reduced(),
    }
}

/// The chosen way takes at most 2 % longer than the other did.
#[test]
fn the_choice_is_that_of_the_measured_times() {
    let mut lost = Vec::new();
    for Layer { fused, world, name, sizes, times } in MEASURED {
        for (rows, pipeline_us, sequence_us) in times {
            let cost = cost(fused, world, sizes, *rows);
            let chosen = if cost.pipelines() { *pipeline_us } else { *sequence_us };
            let Cost { pipeline_us: pipeline, sequence_us: sequence, .. } = cost;
            eprintln!(
                "{fused:?} {world} {name} {rows}: {pipeline:.0} for {pipeline_us}, {sequence:.0} for {sequence_us}"
            );
            if chosen > 1.02 * pipeline_us.min(*sequence_us) {
                lost.push((fused, world, name, *rows));
            }
        }
    }
    assert_eq!(lost, NEAR);
}

/// Each within a third, and 7 % on average.
#[test]
fn the_times_are_near_the_measured() {
    let mut errors = Vec::new();
    for Layer { fused, world, name, sizes, times } in MEASURED {
        for (rows, pipeline_us, sequence_us) in times {
            let cost = cost(fused, world, sizes, *rows);
            for (model, measured) in [(cost.pipeline_us, pipeline_us), (cost.sequence_us, sequence_us)] {
                let error = (model / measured).ln().abs();
                assert!(error < 1.33f64.ln(), "{fused:?} {world} {name} {rows}: {cost:?}");
                errors.push(error);
            }
        }
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(mean < 0.07, "{mean}");
}

#[test]
fn no_way_beats_the_bound() {
    for world in 2..=16 {
        for rows in [world, 128 * world, 4096 * world] {
            let work = PlanWork { world, products: &[product(OUT)], rows, part_bytes: rows / world * OUT.1 * 2 };
            for cost in [work.gathered(), work.scattered(), work.all_reduced()] {
                assert!(cost.sequence_us > cost.bound_us && cost.pipeline_us > cost.bound_us, "{cost:?}");
            }
        }
    }
}

/// The largest sizes that a plan may have are numbers of the model.
#[test]
fn the_largest_sizes_have_a_cost() {
    let largest = Product::new(i32::MAX as usize, i32::MAX as usize, Numeric::F32);
    let work = PlanWork { world: 16, products: &[largest], rows: 1 << 59, part_bytes: 1 << 61 };
    for cost in [work.gathered(), work.scattered(), work.all_reduced()] {
        assert!(cost.bound_us.is_finite() && cost.bound_us > 0.0, "{cost:?}");
    }
}
