//! Cards that are reset, set up and asked about themselves.

use super::chip::E1000e;
use super::registers::{
    BusControl, BusControl2, ExtendedControl, InterruptCause, InterruptVectors, ReceiveBaseHigh,
    ReceiveLength, ReceiveReports, TransmitArbitration, TransmitBaseLow, TransmitLength,
};
use crate::intel::chip::{Chip as _, Setup};
use crate::intel::model::lab::SETUP;
use crate::intel::model::{ADDRESS, Model, Played, State};
use crate::intel::registers::{
    AddressHigh, Control, Groups, ReceiveControl, Register as _, TransmitControl, phy,
};

fn model() -> (Model, E1000e<Model>) {
    let model = Model::new(E1000e::<Model>::KIND);
    let chip = E1000e::new(model.clone());
    (model, chip)
}

#[test]
fn a_card_is_at_rest_before_it_is_reset_and_set_up_then() {
    let (model, chip) = model();
    {
        // As somebody else has left it.
        let mut state = model.state();
        state.set(ReceiveControl::ENABLE);
        state.set(TransmitControl::ENABLE);
        state.phy[phy::CONTROL as usize] = phy::POWER_DOWN | 0x40;
    }
    let memory = model.memories(256, 1);
    chip.reset().unwrap();
    assert_eq!(model.state().at_reset, [(0, 0, false)], "nothing accessed memory any more");
    assert_eq!(chip.registers().address(), Some(ADDRESS));
    model.state().set_at(1, AddressHigh::new(u32::MAX));
    model.state().set_at(127, Groups::new(u32::MAX));
    chip.start(&memory, Setup { longest: 1522, is_promiscuous: true, ..SETUP }).unwrap();
    let expected = ReceiveControl::ENABLE
        | ReceiveControl::BROADCAST
        | ReceiveControl::ALL_GROUPS
        | ReceiveControl::ALL_STATIONS
        | ReceiveControl::STRIP_CRC;
    assert_eq!(model.get::<ReceiveControl>(), expected);
    assert!(model.get::<ReceiveReports>().has(ReceiveReports::EXTENDED));
    assert_eq!((model.get::<ReceiveBaseHigh>().bits(), model.get::<TransmitBaseLow>().bits()), (1, 4096));
    assert_eq!((model.get::<ReceiveLength>().bits(), model.get::<TransmitLength>().bits()), (4096, 4096));
    assert!(model.get::<TransmitControl>().has(TransmitControl::ENABLE));
    assert!(model.get::<Control>().has(Control::SET_LINK_UP));
    assert_eq!(model.get::<InterruptVectors>().bits(), 0x8_0009);
    let address = model.state().get_at::<AddressHigh>(1);
    let groups = model.state().get_at::<Groups>(127);
    assert_eq!((address.bits(), groups.bits()), (0, 0));
    assert_eq!(model.state().phy[0], phy::NEGOTIATE | phy::RESTART | 0x40, "it was asleep");
    chip.start(&memory, SETUP).unwrap();
    let control = model.get::<ReceiveControl>();
    assert!(control.has(ReceiveControl::LONG) && !control.has(ReceiveControl::ALL_STATIONS));
}

#[test]
fn reserved_bits_are_set_as_the_card_needs_them_and_others_stay() {
    let (model, chip) = model();
    let memory = model.memories(64, 1);
    chip.reset().unwrap();
    {
        let mut state = model.state();
        state.set(Control::new(1 << 29 | 1));
        state.set(ExtendedControl::new(1 << 23 | 1 << 4));
        state.set(TransmitArbitration::new(0b1111 << 27 | 0x403));
        state.set(BusControl::new(7));
        state.set(BusControl2::new(6));
    }
    chip.start(&memory, SETUP).unwrap();
    assert_eq!(model.get::<Control>().bits() & (1 << 29 | 1), 1);
    assert_eq!(model.get::<ExtendedControl>().bits(), 1 << 31 | 1 << 22 | 1 << 4);
    assert_eq!(model.get::<TransmitArbitration>().bits(), 1 << 26 | 0x403);
    assert_eq!((model.get::<BusControl>().bits(), model.get::<BusControl2>().bits()), (1 << 22 | 7, 7));
}

#[test]
fn a_card_that_somebody_else_has_reset_does_not_run() {
    let (model, chip) = model();
    let memory = model.memories(64, 1);
    chip.reset().unwrap();
    assert!(!chip.registers().is_running());
    chip.start(&memory, SETUP).unwrap();
    assert!(chip.registers().is_running());
    let stops: [fn(&mut State); 2] =
        [|state| state.set(ReceiveControl::OFF), |state| state.set(TransmitControl::OFF)];
    for stop in stops {
        chip.start(&memory, SETUP).unwrap();
        stop(&mut model.state());
        assert!(!chip.registers().is_running());
    }
}

#[test]
fn cards_that_cannot_be_driven_are_refused() {
    let refused = |change: fn(&mut State)| {
        let (model, chip) = model();
        change(&mut model.state());
        let memory = model.memories(64, 1);
        chip.reset().and_then(|()| chip.start(&memory, SETUP)).unwrap_err()
    };
    for (said, change) in [
        ("doesn't answer", (|state| state.is_gone = true) as fn(&mut State)),
        ("can't be reset", |state| state.never_resets = true),
        ("can't be reset", |state| state.never_reads = true),
        ("PHY doesn't answer", |state| state.has_dead_phy = true),
    ] {
        let error = refused(change);
        assert!(error.contains(said), "{said}: {error}");
    }
}

#[test]
fn changes_interrupt_again_once_they_are_acknowledged() {
    let (model, chip) = model();
    let memory = model.memories(64, 1);
    chip.reset().unwrap();
    chip.start(&memory, SETUP).unwrap();
    let change = || model.state().change_link();
    change();
    change();
    assert_eq!(model.state().all_interrupts(), 1);
    chip.acknowledge_changes();
    assert_eq!(model.get::<InterruptCause>().bits(), 0);
    change();
    assert_eq!(model.state().all_interrupts(), 2);
}
