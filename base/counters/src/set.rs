//! Sets of counters, declared once.

/// Declares a set of counters: the set itself, for its one writer, and its view, for all readers.
///
/// Each entry has a name, its [`Role`](crate::Role) in the set's balance, a unit, and a doc comment that is also its
/// help text. The set has a method for each that gives the writer something to [`add`](crate::CounterRef::add) to
/// (of a `Gauge`: to [`set`](crate::GaugeRef::set), of a `Peak`: to [`raise`](crate::PeakRef::raise)); the view has one that gives the value. With `drops by`, both also
/// have `drops()`.
///
/// ```
/// use warmlane_counters::{counters, drop_reasons};
///
/// drop_reasons! {
///     /// Why the example drops.
///     pub enum Reason {
///         /// The frame is shorter than an Ethernet header.
///         Runt: "runt", Warning;
///     }
/// }
///
/// counters! {
///     /// What the example counts.
///     pub struct ExampleCounters => ExampleCountersView, drops by Reason {
///         /// Packets taken in.
///         received: In, "packets";
///         /// Packets passed on.
///         passed_on: Out, "packets";
///         /// Bytes of the packets passed on.
///         bytes: Note, "bytes";
///     }
/// }
///
/// let counters = ExampleCounters::new();
/// let view = counters.view();
/// counters.received().add(10);
/// counters.passed_on().add(6);
/// counters.drops().count(Reason::Runt, 3);
/// assert_eq!((view.received(), view.drops().total()), (10, 3));
/// assert_eq!(view.balance(), 1, "one is inside");
/// assert_eq!(ExampleCountersView::DESCRIPTIONS[1].name, "passed-on");
/// ```
///
/// The set is its one writer's: it can be sent to another thread, but neither shared nor cloned.
/// ```compile_fail,E0277
/// # warmlane_counters::counters! {
/// #     /// .
/// #     pub struct ExampleCounters => ExampleCountersView {
/// #         /// .
/// #         received: In, "packets";
/// #     }
/// # }
/// let counters = ExampleCounters::new();
/// let received = counters.received();
/// std::thread::scope(|scope| {
///     scope.spawn(|| received.add(1));
/// });
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$outer:meta])*
        $visibility:vis struct $set:ident $(<$parameter:ident = $default:ty>)? => $view:ident
        $(, drops by $reason:ty)? {
            $($(#[doc = $help:literal])+ $entry:ident: $role:ident, $unit:literal;)+
        }
    ) => {
        $(#[$outer])*
        ///
        /// For the one thread that counts; others read by the view.
        $visibility struct $set $(<$parameter = $default>)? {
            cells: $crate::macros::Cells<{ [$(stringify!($entry)),+].len() }>,
            $(drops: $crate::DropCounters<$reason>,)?
        }

        $(#[$outer])*
        ///
        /// To read, from any thread.
        #[derive(Clone)]
        $visibility struct $view {
            cells: $crate::macros::CellsView<{ [$(stringify!($entry)),+].len() }>,
            $(drops: $crate::__instead!($reason, $crate::DropView),)?
        }

        #[allow(dead_code, reason = "not every set has all its values read")]
        impl $(<$parameter: $crate::Reason>)? $set $(<$parameter>)? {
            /// All zero.
            $visibility fn new() -> Self {
                Self {
                    cells: ::core::default::Default::default(),
                    $(drops: $crate::DropCounters::<$reason>::new(),)?
                }
            }

            /// The set, to read.
            $visibility fn view(&self) -> $view {
                $view {
                    cells: self.cells.view(),
                    $(drops: $crate::DropCounters::<$reason>::view(&self.drops),)?
                }
            }

            $($(#[doc = $help])+
            #[inline(always)]
            $visibility fn $entry(&self) -> $crate::macros::role::$role<'_> {
                self.cells.entry(const { $crate::macros::position($view::NAMES, stringify!($entry)) })
            })+

            $(/// What was dropped, by reason.
            #[inline(always)]
            $visibility fn drops(&self) -> &$crate::DropCounters<$reason> {
                &self.drops
            })?
        }

        impl $(<$parameter: $crate::Reason>)? ::core::default::Default for $set $(<$parameter>)? {
            fn default() -> Self {
                Self::new()
            }
        }

        impl $(<$parameter: $crate::Reason>)? ::core::fmt::Debug for $set $(<$parameter>)? {
            fn fmt(&self, formatter: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Debug::fmt(&self.view(), formatter)
            }
        }

        #[allow(dead_code, reason = "not every set has all its values read")]
        impl $view {
            const NAMES: &'static [&'static str] = &[$(stringify!($entry)),+];

            /// What the set is called: the type's name without "Counters".
            $visibility const SET: &'static str = {
                const NAME: [u8; $crate::macros::set_name_length(stringify!($set))] =
                    $crate::macros::set_name(stringify!($set));
                match ::core::str::from_utf8(&NAME) {
                    Ok(name) => name,
                    Err(_) => stringify!($set),
                }
            };

            /// What each value means, in the order of their declaration; without the drops.
            $visibility const DESCRIPTIONS: &'static [$crate::Description] = &[$($crate::Description {
                set: Self::SET,
                name: {
                    const NAME: [u8; stringify!($entry).len()] = $crate::macros::kebab(stringify!($entry));
                    match ::core::str::from_utf8(&NAME) {
                        Ok(name) => name,
                        Err(_) => stringify!($entry),
                    }
                },
                unit: $unit,
                help: concat!($($help),+).trim_ascii(),
                role: $crate::Role::$role,
            }),+];

            $($(#[doc = $help])+
            $visibility fn $entry(&self) -> u64 {
                self.cells.get(const { $crate::macros::position(Self::NAMES, stringify!($entry)) })
            })+

            $(/// What was dropped, by reason.
            $visibility fn drops(&self) -> &$crate::__instead!($reason, $crate::DropView) {
                &self.drops
            })?

            /// Whether both read the same set.
            $visibility fn is_same(&self, other: &Self) -> bool {
                self.cells.is_same(&other.cells)
            }

            /// What came in less what went out, drops included: what is inside. While the writer counts, it may be
            /// off by what happened between two reads.
            $visibility fn balance(&self) -> i64 {
                $crate::Source::balance(self)
            }
        }

        impl $crate::Source for $view {
            fn read(&self, each: &mut dyn FnMut($crate::Entry)) {
                for (index, description) in Self::DESCRIPTIONS.iter().enumerate() {
                    each($crate::Entry::of(*description, self.cells.get(index)));
                }
                $($crate::__instead!($reason, self.drops.read_as(Self::SET, $crate::macros::role_of_drops(Self::DESCRIPTIONS), each));)?
            }
        }

        impl ::core::fmt::Debug for $view {
            fn fmt(&self, formatter: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                $crate::macros::debug(self, stringify!($view), formatter)
            }
        }
    };
}

/// Expands to its second part; the first is what a repetition goes by.
#[doc(hidden)]
#[macro_export]
macro_rules! __instead {
    ($by:ty, $($tokens:tt)*) => { $($tokens)* };
}

#[cfg(test)]
mod tests {
    use crate::{Kind, NoDrops, Reason, Role, drop_reasons};

    drop_reasons! {
        /// Why the tests drop.
        pub(super) enum Why {
            /// The first.
            First: "first", Notice;
        }
    }

    counters! {
        /// What is counted on the way through.
        struct Through => ThroughView, drops by Why {
            /// Packets taken in.
            received: In, "packets";
            /// Packets taken in
            /// a second time.
            taken_in_again: In, "packets";
            /// Packets passed on.
            passed_on: Out, "packets";
            /// Their bytes.
            bytes: Note, "bytes";
            /// Packets that wait.
            waiting: Gauge, "packets";
        }
    }

    counters! {
        /// For any reasons.
        pub(crate) struct Generic<R = NoDrops> => GenericView, drops by R {
            /// Packets.
            packets: Note, "packets";
        }
    }

    counters! {
        /// Without drops.
        struct Plain => PlainView {
            /// Packets.
            packets: In, "packets";
        }
    }

    counters! {
        /// Named as sets usually are.
        struct FlowTableCounters => FlowTableCountersView {
            /// Flows.
            flows: Gauge, "flows";
            /// The most that there were.
            most: Peak, "flows";
        }
    }

    #[test]
    fn the_view_shows_what_the_set_counts() {
        let set = Through::new();
        let view = set.view();
        set.received().add(5);
        set.received().add(2);
        set.bytes().add(900);
        set.waiting().set(4);
        set.waiting().set(3);
        set.drops().count(Why::First, 1);
        assert_eq!((view.received(), view.taken_in_again(), view.passed_on()), (7, 0, 0));
        assert_eq!((view.bytes(), view.waiting(), view.drops().get(Why::First)), (900, 3, 1));
        assert_eq!((set.received().get(), set.waiting().get()), (7, 3));
    }

    #[test]
    fn a_peak_only_rises() {
        let set = FlowTableCounters::new();
        let view = set.view();
        for flows in [3, 7, 5] {
            set.flows().set(flows);
            set.most().raise(flows);
        }
        assert_eq!((view.flows(), view.most(), set.most().get(), view.balance()), (5, 7, 7, 0));
        let mut together = Vec::new();
        crate::Source::read(&view, &mut |entry| together.push(entry.together(6)));
        assert_eq!(together, [11, 7]);
    }

    #[test]
    fn the_balance_is_what_is_inside() {
        let set = Through::default();
        let view = set.view();
        set.received().add(7);
        set.taken_in_again().add(1);
        set.bytes().add(1);
        set.waiting().set(100);
        assert_eq!(view.balance(), 8);
        set.passed_on().add(5);
        set.drops().count(Why::First, 3);
        assert_eq!(view.balance(), 0);
        set.passed_on().add(1);
        assert_eq!(view.balance(), -1, "one too many went out");
    }

    #[test]
    fn a_set_that_counts_nothing_in_has_no_balance() {
        let set = Generic::<Why>::new();
        set.packets().add(3);
        set.drops().count(Why::First, 2);
        assert_eq!(set.view().balance(), 0);
    }

    #[test]
    fn each_value_is_described() {
        let [_, again, out, bytes, waiting] = ThroughView::DESCRIPTIONS else { panic!("five values") };
        assert_eq!((again.set, again.name, again.unit), ("through", "taken-in-again", "packets"));
        assert_eq!((GenericView::SET, FlowTableCountersView::SET), ("generic", "flow-table"));
        assert_eq!(again.help, "Packets taken in a second time.");
        assert_eq!((out.role, bytes.role), (Role::Out, Role::Note));
        assert_eq!((bytes.kind(), waiting.kind()), (Kind::Counter, Kind::Gauge));
    }

    #[test]
    fn sets_and_views_print_their_values() {
        let set = Through::new();
        set.received().add(7);
        set.drops().count(Why::First, 2);
        let text = format!("{set:?}");
        assert_eq!(text, format!("{:?}", set.view()));
        assert!(text.starts_with("ThroughView") && text.contains("received: 7"), "{text}");
        assert!(text.contains("drops first: 2"), "{text}");
    }

    #[test]
    fn views_can_be_kept_anywhere() {
        fn is_for_all<T: Clone + Send + Sync + 'static>(_: &T) {}
        fn can_move<T: Send>(_: &T) {}
        let (generic, plain) = (Generic::<NoDrops>::new(), Plain::new());
        plain.packets().add(1);
        can_move(&generic);
        is_for_all(&generic.view());
        is_for_all(&plain.view());
        assert!(plain.view().is_same(&plain.view()) && !plain.view().is_same(&Plain::new().view()));
        assert_eq!((generic.view().drops().total(), plain.view().balance()), (0, 1));
        assert!(NoDrops::ALL.is_empty());
        assert_eq!(GenericView::DESCRIPTIONS.len() + PlainView::DESCRIPTIONS.len(), 2);
        assert_eq!((generic.view().packets(), plain.view().packets()), (0, 1));
    }
}
