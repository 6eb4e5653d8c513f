use super::*;

/// Llama-3 70B on two ranks: K and N of a rank's products.
const QKV: (usize, usize) = (8192, 5120);
const GATE_UP: (usize, usize) = (8192, 28672);
const OUT: (usize, usize) = (4096, 8192);
const DOWN: (usize, usize) = (14336, 8192);

fn product((inner, columns): (usize, usize)) -> Product {
    Product::new(inner, columns, Numeric::BF16)
}

fn gathered(world: usize, sizes: (usize, usize), rows: usize) -> Cost {
    Work { world, products: &[product(sizes)], rows, part_bytes: rows / world * sizes.0 * 2 }.gathered()
}

fn scattered(world: usize, sizes: (usize, usize), rows: usize) -> Cost {
    let part_bytes = rows / world * sizes.1 * 2;
    Work { world, products: &[product(sizes)], rows, part_bytes }.scattered()
}

/// What was measured on two H100: which way is faster, for rows on both sides of the crossover.
#[test]
fn the_choice_is_that_of_the_measured_times() {
    for (sizes, rows, pays) in [
        (OUT, 128, false),
        (OUT, 512, false),
        (OUT, 1024, true),
        (OUT, 16384, true),
        (DOWN, 512, false),
        (DOWN, 1024, true),
        (DOWN, 8192, true),
    ] {
        let cost = scattered(2, sizes, rows);
        assert_eq!(cost.pipelines(), pays, "{sizes:?}, {rows} rows: {cost:?}");
    }
    for (sizes, rows, pays) in [
        (QKV, 128, false),
        (QKV, 1024, true),
        (QKV, 8192, true),
        (GATE_UP, 128, false),
        (GATE_UP, 512, false),
        (GATE_UP, 1024, true),
        (GATE_UP, 8192, true),
    ] {
        let cost = gathered(2, sizes, rows);
        assert_eq!(cost.pipelines(), pays, "{sizes:?}, {rows} rows: {cost:?}");
    }
}

/// Measured on two H100: 117, 222, 451 and 886 us; one after the other 133, 258, 494 and 988.
#[test]
fn the_times_are_near_the_measured() {
    for (rows, pipeline_us, sequence_us) in
        [(1024, 117.0, 133.0), (2048, 222.0, 258.0), (4096, 451.0, 494.0), (8192, 886.0, 988.0)]
    {
        let cost = scattered(2, OUT, rows);
        let near = |model: f64, measured: f64| (model / measured - 1.0).abs() < 0.1;
        assert!(near(cost.pipeline_us, pipeline_us) && near(cost.sequence_us, sequence_us), "{rows}: {cost:?}");
    }
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
