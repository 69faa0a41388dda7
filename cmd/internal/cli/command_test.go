package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-dev/lockstep"
)

func TestTheDescriptionFitsTheLimits(t *testing.T) {
	for _, command := range [][]string{{"true"}, {"sh", "-c", strings.Repeat("é\x00\n", 900)}, slices.Repeat([]string{"word"}, 1000)} {
		for _, purpose := range []string{"", "p", strings.Repeat("p", 900)} {
			labels := describe((&claimFlags{purpose: purpose}).labels(), command)
			if err := lockstep.CheckMetadata(labels); err != nil {
				t.Errorf("purpose of %d bytes, %d words: %v", len(purpose), len(command), err)
			}
		}
	}
}
