package command

import "fmt"

// LevelOf returns the feature level from which the log may hold the command. A leader proposes no
// command of a level that its cluster has not reached: older nodes would stop at the entry.
func LevelOf(c Command) uint32 {
	switch c := c.(type) {
	case OpenSession:
		if c.Hashed {
			return SecretLevel
		}
		return FirstLevel
	case SetBirth:
		return BirthLevel
	case CheckpointLeases, RenewLeases:
		return LeaseLevel
	default:
		return FirstLevel
	}
}

// CheckLevels returns an error that names the first command that nodes of this feature level could
// not apply. The commands follow each other in the log, so a SetLimits counts for those after it.
func CheckLevels(level uint32, commands []Command) error {
	for _, c := range commands {
		if need := LevelOf(c); need > level {
			return fmt.Errorf("command: a %T needs feature level %d, the cluster has %d", c, need, level)
		}
		if limits, ok := c.(SetLimits); ok {
			level = max(level, limits.Limits.FeatureLevel)
		}
	}
	return nil
}
