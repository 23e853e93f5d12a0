"""From a spec to a plan: arms, their proof, every trial with its id, and the price. Pure: starts and writes nothing."""
