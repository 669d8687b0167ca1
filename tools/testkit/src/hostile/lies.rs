//! How many lies are told.

/// How many lies all that lie in rings tell together: `WARMLANE_TEST_LIES`, or some.
const USUAL: u64 = 550_000;

/// Those that lie in rings, of all drivers: each tells its share.
const LIARS: u64 = 11;

/// A message costs a connection, which takes as long as many lies in a ring: who lies on a control socket tells one for each so many of a share.
const MESSAGE: u64 = 64;

/// What a liar has to tell, and has told.
#[derive(Debug)]
pub struct Lies {
    who: String,
    what: &'static str,
    wanted: u64,
    told: u64,
    connections: u64,
}

impl Lies {
    /// Of one that changes descriptors and indices of rings.
    pub fn in_descriptors(who: &str) -> Self {
        Self::new(who, "descriptors", share())
    }

    /// Of one that changes messages. To the other side a connection costs so many times what it mostly does.
    pub fn in_messages(who: &str, cost: u64) -> Self {
        Self::new(who, "messages", share() / MESSAGE / cost)
    }

    fn new(who: &str, what: &'static str, wanted: u64) -> Self {
        Self { who: who.to_owned(), what, wanted: wanted.max(4), told: 0, connections: 0 }
    }

    /// How many are left to be told.
    pub const fn left(&self) -> u64 {
        self.wanted.saturating_sub(self.told)
    }

    /// Whether there is more to tell: what is left, and anything as long as there was but one connection, for a while. A busy machine may be late
    /// to find a lie out.
    pub const fn go_on(&self) -> bool {
        self.left() > 0 || self.connections < 2 && self.told < self.wanted.saturating_mul(1_000)
    }

    /// So many were told.
    pub const fn told(&mut self, count: u64) {
        self.told += count;
    }

    /// There is another connection to tell them by.
    pub const fn connected(&mut self) {
        self.connections += 1;
    }

    /// Says how many there were.
    ///
    /// # Panics
    /// If it was less than there should have been, or all by one connection: then no lie was found out.
    pub fn end(self) {
        let Self { who, what, wanted, told, connections } = self;
        println!("LIES: {who}: {told} changed {what}, {connections} connections");
        assert!(told >= wanted, "{told} of {wanted} lies were told");
        assert!(connections > 1, "no lie was found out");
    }
}

fn share() -> u64 {
    let wanted = std::env::var("WARMLANE_TEST_LIES").ok();
    wanted.map_or(USUAL, |count| count.parse().expect("WARMLANE_TEST_LIES is a number")).div_ceil(LIARS)
}
