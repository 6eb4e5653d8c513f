//! Ranks as processes: the test executable runs itself again, for one test and one rank.
