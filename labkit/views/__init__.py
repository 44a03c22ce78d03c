"""Pictures of the objects that the other rooms make, and the diagrams of the lectures."""
