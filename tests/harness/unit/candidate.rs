use super::*;

fn trial(times_us: [f64; 2]) -> Trial {
    Trial { times_us: times_us.into(), host_us: times_us.map(|time| time / 2.0).into(), wrong: 0, checksum: 0 }
}

#[test]
fn the_lead_of_four_operations_is_subtracted_once() {
    let mut combine = trial([7.0, 10.0]);
    combine.subtract(&trial([8.0, 16.0]), 4);
    assert_eq!((combine.times_us, combine.host_us), (vec![5.0, 6.0], vec![2.5, 3.0]));
}
