package redlock

import "bytes"

const (
	clientBytes = 10
	nodeBytes   = 4 + 5*modelClients // what a node has, and what the clients know of it
)

// A stateKey is a state written down shortly. States that differ only by which node or client is
// which have one key: their futures differ by that alone.
type stateKey [modelClients*clientBytes + modelNodes*nodeBytes + 3]byte

// The orders of three clients; those of two are the first two, those of one the first.
var orders = [][modelClients]int{{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// keyOf is the least of the keys by all orders of the clients.
func keyOf(s *modelState, clients int) (least stateKey) {
	count := []int{0, 1, 2, 6}[clients]
	for i, who := range orders[:count] {
		key := write(s, who, clients)
		if i == 0 || bytes.Compare(key[:], least[:]) < 0 {
			least = key
		}
	}
	return least
}

// write writes the clients in the order given and the nodes in the order of what there is to say of
// them.
func write(s *modelState, who [modelClients]int, clients int) (key stateKey) {
	at := 0
	put := func(b ...byte) { at += copy(key[at:], b) }
	var place [modelClients + 1]byte // of the client with this number
	for i, c := range who[:clients] {
		place[c+1] = byte(i + 1)
		k := &s.clients[c]
		put(byte(k.attempt.phase), byte(k.attempt.token), bit(k.begun), bit(k.held), bit(k.done), bit(k.first), bit(k.second), k.floor, bit(k.renewing), bit(k.renewed))
	}
	var nodes [modelNodes][nodeBytes]byte
	for n := range nodes {
		node := s.nodes[n]
		line := append(nodes[n][:0], place[node.holder], node.reading, node.counter, bit(node.renewed))
		for _, c := range who[:clients] {
			k := &s.clients[c]
			line = append(line, byte(k.attempt.nodes[n]), byte(k.attempt.counters[n]), k.take[n], bit(k.raise[n]), bit(k.extend[n])|bit(k.extended[n])<<1)
		}
	}
	for _, pair := range [][2]int{{0, 1}, {1, 2}, {0, 1}} { // sorts three
		if a, b := &nodes[pair[0]], &nodes[pair[1]]; bytes.Compare(a[:], b[:]) > 0 {
			*a, *b = *b, *a
		}
	}
	for n := range nodes {
		put(nodes[n][:]...)
	}
	put(byte(s.forgets), bit(s.twice), bit(s.renewing))
	return key
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}
