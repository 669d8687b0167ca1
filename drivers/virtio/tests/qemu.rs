//! A machine of QEMU that has no memory to lend. Its firmware drives the network card, to boot from it, which no other driver does so soon.

mod common;

use common::World;
use std::process::Command;
use std::time::Instant;
use warmlane_testkit::exchange::LONG;
use warmlane_testkit::process::Process;
use warmlane_testkit::requirements;

const QEMU: &str = "qemu-system-x86_64";

fn start(path: &str, memory: &[&str]) -> Process {
    let mut command = Command::new(QEMU);
    command.args(["-machine", "q35,accel=tcg", "-cpu", "max", "-m", "256"]).args(memory);
    command.args(["-nodefaults", "-display", "none"]);
    command.args(["-chardev", &format!("socket,id=c,path={path},reconnect=1")]);
    command.args(["-netdev", "vhost-user,id=n,chardev=c"]);
    // Without KVM, QEMU 7.2 falls over its own interrupts when it has vectors.
    command.args(["-device", "virtio-net-pci,netdev=n,bootindex=1,disable-legacy=on,vectors=0"]);
    Process::spawn(&mut command)
}

/// Waits for what a machine does.
fn wait(qemu: &mut Process, world: &World, happened: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !happened() {
        let reason = world.port.monitor.status().unwrap().reason;
        let is_running = !qemu.has_ended() && Instant::now() < end;
        assert!(is_running, "last reason: {reason:?}; QEMU said: {}{}", qemu.output(), qemu.errors());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn memory_that_is_not_shared_is_named() {
    if !requirements::programs(&[QEMU]) {
        return;
    }
    let world = World::vhost();
    let mut qemu = start(&world.path, &[]);
    wait(&mut qemu, &world, || world.port.monitor.status().unwrap().reason.contains("share=on"));
    assert_eq!(world.port.monitor.status().unwrap().connections, 0);
    drop(qemu);
    // The remedy.
    let shared = ["-object", "memory-backend-memfd,id=m,size=256M,share=on", "-numa", "node,memdev=m"];
    let mut qemu = start(&world.path, &shared);
    // For some seconds only: then the firmware gives up.
    wait(&mut qemu, &world, || world.port.monitor.status().unwrap().connections > 0);
}
