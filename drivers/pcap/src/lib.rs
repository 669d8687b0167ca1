//! Ports that read and write pcap and pcapng files
