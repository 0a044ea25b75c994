"""Planning by search: solvers, the latent cost they minimise, and the loop that acts by them."""
