//! Two hosts with a router between them, over packet sockets on virtual links: whatever the kernel's hosts do must go through.

use warmlane_system_tests::Driver;

hosts_over!(Driver::Packet);
