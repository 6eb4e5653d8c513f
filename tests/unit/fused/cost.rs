use super::*;

/// What is fused with a product.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fused {
    AllGather,
    ReduceScatter,
    AllReduce,
}

/// Measured on H100 with NVLink, bf16, in graphs: a layer of Llama-3 70B with K and N of a rank's product.
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
        &[(512, 80.8, 79.9), (1024, 133.1, 154.4), (2048, 249.8, 301.8), (4096, 493.3, 602.7)],
    ),
    layer(
        (Fused::AllGather, 2),
        "gate_up",
        (8192, 28672),
        &[(512, 441.9, 383.8), (1024, 719.0, 776.2), (2048, 1449.0, 1496.0), (4096, 2831.0, 2956.0)],
    ),
    layer(
        (Fused::AllGather, 4),
        "qkv",
        (8192, 2560),
        &[(512, 111.1, 56.8), (1024, 118.2, 101.0), (2048, 155.8, 199.9), (4096, 263.8, 383.0), (8192, 487.0, 786.0)],
    ),
    layer(
        (Fused::AllGather, 4),
        "gate_up",
        (8192, 14336),
        &[
            (512, 363.0, 214.0),
            (1024, 404.0, 415.0),
            (2048, 822.5, 787.0),
            (4096, 1416.5, 1630.0),
            (8192, 2894.5, 3194.0),
        ],
    ),
    layer((Fused::AllGather, 4), "a square", (8192, 2048), &[(4096, 224.1, 332.0)]),
    layer(
        (Fused::ReduceScatter, 2),
        "o",
        OUT,
        &[
            (128, 65.2, 40.2),
            (512, 78.7, 68.7),
            (1024, 117.7, 133.2),
            (2048, 222.5, 258.1),
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
            (512, 208.0, 201.3),
            (1024, 374.5, 393.3),
            (2048, 740.7, 779.1),
            (4096, 1440.0, 1526.0),
            (8192, 2911.5, 3114.0),
        ],
    ),
    layer(
        (Fused::ReduceScatter, 4),
        "o",
        (2048, 8192),
        &[(512, 68.8, 55.0), (1024, 95.7, 95.3), (2048, 138.8, 184.6), (4096, 247.3, 356.0), (8192, 503.0, 704.0)],
    ),
    layer(
        (Fused::ReduceScatter, 4),
        "down",
        (7168, 8192),
        &[
            (512, 198.0, 112.0),
            (1024, 227.9, 228.0),
            (2048, 376.0, 436.0),
            (4096, 740.0, 875.0),
            (8192, 1508.0, 1755.0),
        ],
    ),
    layer(
        (Fused::AllReduce, 2),
        "o",
        OUT,
        &[(16, 66.7, 30.3), (64, 74.9, 34.1), (128, 77.0, 39.3), (1024, 149.5, 150.8), (4096, 530.1, 568.7)],
    ),
    layer(
        (Fused::AllReduce, 2),
        "down",
        (14336, 8192),
        &[(16, 177.3, 85.5), (64, 186.3, 89.7), (128, 188.3, 96.5), (1024, 400.6, 398.4), (4096, 1548.0, 1572.0)],
    ),
    layer((Fused::AllReduce, 4), "o", (2048, 8192), &[(1024, 143.5, 130.3), (4096, 398.0, 477.0)]),
    layer((Fused::AllReduce, 4), "down", (7168, 8192), &[(1024, 274.7, 248.0), (4096, 854.0, 968.0)]),
];

/// Rows where the model chooses the way that was slower by more than 2 %. Here that is 2.7 %, and runs of one way differ by up
/// to 4 %. The same constants choose the faster way at 2048 rows, where it is faster by 4.5 %.
const NEAR: [(Fused, usize, &str, usize); 1] = [(Fused::AllGather, 4, "gate_up", 1024)];

fn product((inner, columns): (usize, usize)) -> Product {
    Product::new(inner, columns, Numeric::BF16)
}

fn cost(fused: Fused, world: usize, sizes: (usize, usize), rows: usize) -> Cost {
    let moved = if fused == Fused::AllGather { sizes.0 } else { sizes.1 };
    let work = Work { world, products: &[product(sizes)], rows, part_bytes: rows / world * moved * 2 };
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
            let work = Work { world, products: &[product(OUT)], rows, part_bytes: rows / world * OUT.1 * 2 };
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
    let work = Work { world: 16, products: &[largest], rows: 1 << 59, part_bytes: 1 << 61 };
    for cost in [work.gathered(), work.scattered(), work.all_reduced()] {
        assert!(cost.bound_us.is_finite() && cost.bound_us > 0.0, "{cost:?}");
    }
}
