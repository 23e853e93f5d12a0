"""From a spec to a plan: arms, their proof, every trial with its id, the price. Starts and writes nothing."""
